#include "engine/token_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/rng.h"

namespace pelton::engine {
namespace {

std::map<int32_t, int32_t> sorted(const TokenHistory& history) {
  std::map<int32_t, int32_t> counts;
  for (const auto& [token, outputs] : history.counts())
    EXPECT_TRUE(counts.emplace(token, outputs).second);
  return counts;
}

TEST(TokenHistory, TellsPromptsFromOutputs) {
  TokenHistory history(6);
  const std::vector<int32_t> tokens = {7, 7, 3, 3, 9, 3};
  history.extend(tokens, 2, 3);
  EXPECT_EQ(sorted(history), (std::map<int32_t, int32_t>{{7, 0}}));
  history.extend(tokens, 2, 3);
  history.extend(tokens, 6, 3);
  EXPECT_EQ(sorted(history), (std::map<int32_t, int32_t>{{7, 0}, {3, 2}, {9, 1}}));
}

TEST(TokenHistory, CountsLikeAMapWhereverTheTokensHash) {
  Random random(5);
  for (const int32_t room : {1, 2, 100, 1000}) {
    for (const uint64_t spread : {3, 50, 1 << 20}) {
      std::vector<int32_t> tokens(static_cast<size_t>(room));
      for (int32_t& token : tokens) token = static_cast<int32_t>(random.below(spread) << 10);
      const size_t prompt = tokens.size() / 3;
      std::map<int32_t, int32_t> want;
      for (size_t i = 0; i < tokens.size(); ++i) want[tokens[i]] += i >= prompt ? 1 : 0;
      TokenHistory history(room);
      for (size_t until = 0; until <= tokens.size(); until += 1 + random.below(7))
        history.extend(tokens, until, prompt);
      history.extend(tokens, tokens.size(), prompt);
      EXPECT_EQ(sorted(history), want) << room << ' ' << spread;
    }
  }
}

TEST(TokenHistory, KeepsToItsRoom) {
  TokenHistory history(2);
  const std::vector<int32_t> tokens = {1, 2, 2, 3};
  history.extend(tokens, 3, 0);
  EXPECT_THROW(history.extend(tokens, 4, 0), InternalError);
}

}  // namespace
}  // namespace pelton::engine
