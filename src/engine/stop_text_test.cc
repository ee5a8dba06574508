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
