#include "engine/stop_text.h"

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "engine/engine_test_util.h"

namespace pelton::engine {
namespace {

class StopTextTest : public testing::Test {
 protected:
  void SetUp() override {
    auto tokenizer = text::Tokenizer::from_folder(small_model());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    tokenizer_ = *tokenizer;
  }

  // One token a character, so that every cut is exercised.
  std::vector<int32_t> byte_ids(const std::string& text) const {
    std::vector<int32_t> ids;
    for (const char c : text) {
      const auto one = tokenizer_->encode(std::string(1, c), {.add_special_tokens = false});
      ids.insert(ids.end(), one.begin(), one.end());
    }
    return ids;
  }

  std::string run(const std::vector<int32_t>& ids, std::vector<std::string> stops,
                  bool include = false) const {
    StopText filter(tokenizer_, std::move(stops), include, true);
    std::string text;
    for (const int32_t id : ids) {
      if (filter.stopped()) break;
      text += filter.push(id);
      EXPECT_TRUE(is_valid_utf8(text));
    }
    return text + filter.finish();
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_;
};

TEST_F(StopTextTest, CutsBeforeTheFirstStop) {
  const auto ids = byte_ids("ABCDEFGHIJKL");
  EXPECT_EQ(run(ids, {"DEFGHIJ"}), "ABC");
  EXPECT_EQ(run(ids, {"DEFGHIJ"}, true), "ABCDEFGHIJ");
  EXPECT_EQ(run(ids, {"H", "C"}), "AB");
  EXPECT_EQ(run(ids, {"CD", "CDE"}), "AB");
}

// Text, and which stop it was, are the same for a token a character as for tokens of several.
TEST_F(StopTextTest, TheStopThatIsCompleteFirstWinsHoweverTokensCut) {
  const std::string text = "value\n\nreturn";
  const auto long_ids = tokenizer_->encode(text, {.add_special_tokens = false});
  ASSERT_LT(long_ids.size(), text.size() - 4);
  struct Case {
    std::vector<std::string> stops;
    std::string before, including;
    int32_t stopped_by;
  };
  const Case cases[] = {
      {{"lue\n\n", "\n"}, "value", "value\n", 1},
      {{"\n\n", "\n"}, "value", "value\n", 1},
      {{"\n", "e\n"}, "valu", "value\n", 1},
      {{"alue\n\nreturn", "ue", "lue"}, "va", "value", 2},
      {{"return", "\n\nret", "etu"}, "value", "value\n\nret", 1},
  };
  for (const Case& c : cases) {
    for (const auto& ids : {byte_ids(text), long_ids}) {
      EXPECT_EQ(run(ids, c.stops), c.before);
      EXPECT_EQ(run(ids, c.stops, true), c.including);
      StopText filter(tokenizer_, c.stops, false, true);
      for (const int32_t id : ids) filter.push(id);
      filter.finish();
      EXPECT_EQ(filter.stopped_by(), c.stopped_by) << c.stops[0];
    }
  }
}

TEST_F(StopTextTest, NothingOfAPossibleStopIsShownBeforeItIsDecided) {
  StopText filter(tokenizer_, {"DEFX"}, false, true);
  std::string text;
  for (const int32_t id : byte_ids("ABCDEF")) text += filter.push(id);
  EXPECT_EQ(text, "ABC");
  for (const int32_t id : byte_ids("G")) text += filter.push(id);
  EXPECT_EQ(text, "ABCDEFG");
}

TEST_F(StopTextTest, HeldTextIsFlushedAtTheEnd) {
  EXPECT_EQ(run(byte_ids("ABCTRE"), {"TRE\nAAAA"}), "ABCTRE");
  EXPECT_EQ(run(byte_ids("ABC"), {""}), "ABC");
}

TEST_F(StopTextTest, OverlappingBeginnings) {
  EXPECT_EQ(run(byte_ids("aaab"), {"aab"}), "a");
  EXPECT_EQ(run(byte_ids("ababac"), {"abac"}), "ab");
}

TEST_F(StopTextTest, AStopInsideOneToken) {
  const auto ids = tokenizer_->encode("value\n\nreturn", {.add_special_tokens = false});
  EXPECT_EQ(run(ids, {"\n"}), "value");
}

TEST_F(StopTextTest, CharactersCutByTheLimitBecomeOneReplacement) {
  const std::string text = "ok \xF0\x9F\x98\x80 \xE6\xB0\xB4";
  const auto ids = tokenizer_->encode(text, {.add_special_tokens = false});
  for (size_t n = 0; n <= ids.size(); ++n) {
    const std::vector<int32_t> part(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
    EXPECT_EQ(run(part, {"never"}), tokenizer_->decode(part, true)) << n;
  }
}

}  // namespace
}  // namespace pelton::engine
