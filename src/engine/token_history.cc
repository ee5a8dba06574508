#include "engine/token_history.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace pelton::engine {

TokenHistory::TokenHistory(int32_t tokens) {
  const auto room = static_cast<size_t>(std::max(tokens, 1));
  counts_.reserve(room);
  table_.resize(std::bit_ceil(2 * room));  // never more than half full
}

ops::TokenCount& TokenHistory::count_of(int32_t token) {
  constexpr uint32_t kGolden = 2654435769u;
  const size_t mask = table_.size() - 1;
  // The high bits of the product are the well mixed ones.
  size_t place = (uint64_t{static_cast<uint32_t>(token) * kGolden} * table_.size()) >> 32;
  while (table_[place] != 0) {
    ops::TokenCount& found = counts_[static_cast<size_t>(table_[place]) - 1];
    if (found.token == token) return found;
    place = (place + 1) & mask;
  }
  check(counts_.size() < counts_.capacity(), "a sequence is longer than its history has room for");
  table_[place] = static_cast<int32_t>(counts_.size()) + 1;
  return counts_.emplace_back(ops::TokenCount{token, 0});
}

void TokenHistory::extend(std::span<const int32_t> tokens, size_t until, size_t prompt_length) {
  check(until <= tokens.size(), "a history has no tokens beyond its sequence");
  for (; counted_ < until; ++counted_) {
    ops::TokenCount& count = count_of(tokens[counted_]);
    count.outputs += counted_ >= prompt_length ? 1 : 0;
  }
}

}  // namespace pelton::engine
