#include "engine/dry_breakers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>

namespace pelton::engine {
namespace {

// Tokens are texts; counts how many were decoded.
class Words final : public text::Tokenizer {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {}

  std::vector<int32_t> encode(std::string_view, const text::EncodeOptions&) const override {
    return {};
  }
  std::string decode(const std::vector<int32_t>& ids, bool) const override {
    ++decoded;
    return words_[static_cast<size_t>(ids[0])];
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(words_.size()); }
  std::string_view piece(int32_t id) const override { return words_[static_cast<size_t>(id)]; }
  std::optional<int32_t> find(std::string_view) const override { return std::nullopt; }
  bool is_special(int32_t) const override { return false; }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> eos_id() const override { return std::nullopt; }
  const std::vector<int32_t>& end_ids() const override { return end_ids_; }
  bool adds_bos() const override { return false; }

  mutable std::atomic<int> decoded = 0;

 private:
  std::vector<std::string> words_;
  std::vector<int32_t> end_ids_;
};

using Ids = std::vector<int32_t>;

TEST(DryBreakers, DecodesTheVocabularyOnceAList) {
  const auto words = std::make_shared<Words>(std::vector<std::string>{"a", "b\n", ":", "x:y", ""});
  DryBreakers breakers(words);
  EXPECT_EQ(words->decoded, 0);
  EXPECT_EQ(breakers.ids({"\n", ":"}), (Ids{1, 2, 3}));
  EXPECT_EQ(breakers.ids({"\n", ":"}), (Ids{1, 2, 3}));
  EXPECT_EQ(words->decoded, 5);
  EXPECT_EQ(breakers.ids({"x"}), (Ids{3}));
  EXPECT_EQ(words->decoded, 10);
  EXPECT_EQ(breakers.ids({"\n", ":"}), (Ids{1, 2, 3}));
}

TEST(DryBreakers, NoBreakersAndEmptyOnesMatchNothing) {
  const auto words = std::make_shared<Words>(std::vector<std::string>{"a", "", "\n"});
  DryBreakers breakers(words);
  EXPECT_EQ(breakers.ids({}), Ids{});
  EXPECT_EQ(breakers.ids({""}), Ids{});
  EXPECT_EQ(breakers.ids({"", "\n"}), Ids{2});
}

TEST(DryBreakers, ThreadsGetTheirOwnList) {
  const auto words = std::make_shared<Words>(std::vector<std::string>{"a", "b", "ab", "c"});
  DryBreakers breakers(words);
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Ids want = t % 2 == 0 ? Ids{0, 2} : Ids{1, 2};
      for (int i = 0; i < 200; ++i)
        if (breakers.ids({t % 2 == 0 ? "a" : "b"}) != want) ++wrong;
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace pelton::engine
