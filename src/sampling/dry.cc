#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/stages.h"

namespace pelton::sampling {
namespace {

bool is_breaker(std::span<const int32_t> breakers, int32_t token) {
  return std::ranges::binary_search(breakers, token);
}

// Tokens since the newest breaker: no repetition can be longer.
int64_t reach(const History& history, int64_t window, std::span<const int32_t> breakers) {
  if (breakers.empty()) return window;
  int64_t length = 0;
  while (length < window && !is_breaker(breakers, history.from_end(length))) ++length;
  return length;
}

// matches[k] = how many of the newest tokens also stand, in the same order, right before the newest
// k. Read from the newest token backwards this is the Z function of the window: [left, right) is
// the match that reaches furthest, and inside it earlier values are reused, so each token is
// compared a bounded number of times.
void repeated_suffixes(const History& history, int64_t window, std::vector<int32_t>& matches) {
  matches.assign(static_cast<size_t>(window), 0);
  int64_t left = 0;
  int64_t right = 0;
  for (int64_t k = 1; k < window; ++k) {
    int64_t length = 0;
    if (k < right) length = std::min<int64_t>(right - k, matches[static_cast<size_t>(k - left)]);
    while (k + length < window && history.from_end(length) == history.from_end(k + length)) {
      ++length;
    }
    matches[static_cast<size_t>(k)] = static_cast<int32_t>(length);
    if (k + length > right) {
      left = k;
      right = k + length;
    }
  }
}

float penalty(const Dry& dry, int64_t length) {
  const auto exponent = static_cast<float>(length - dry.allowed_length);
  const float value = dry.multiplier * std::pow(dry.base, exponent);
  return std::min(value, std::numeric_limits<float>::max());
}

}  // namespace

void apply_dry(std::span<float> logits, const History& history, const Dry& dry,
               SamplerScratch& scratch) {
  int64_t window = history.size();
  if (dry.penalty_last_n >= 0) window = std::min<int64_t>(window, dry.penalty_last_n);
  if (dry.multiplier == 0.0f || window <= dry.allowed_length) return;
  const int64_t limit = reach(history, window, dry.breakers);
  if (limit < dry.allowed_length) return;
  repeated_suffixes(history, window, scratch.per_position);

  // The token that followed the earlier occurrence, i.e. the one at distance k - 1, would extend
  // it. Of several occurrences the longest counts.
  if (scratch.per_token.size() < logits.size()) scratch.per_token.resize(logits.size(), 0);
  const auto each_extension = [&](auto&& visit) {
    for (int64_t k = 1; k < window; ++k) {
      const int64_t length = std::min<int64_t>(scratch.per_position[static_cast<size_t>(k)], limit);
      const int32_t token = history.from_end(k - 1);
      if (length < dry.allowed_length || token < 0 || static_cast<size_t>(token) >= logits.size()) {
        continue;
      }
      visit(static_cast<size_t>(token), static_cast<int32_t>(length));
    }
  };
  each_extension([&](size_t token, int32_t length) {
    scratch.per_token[token] = std::max(scratch.per_token[token], length);
  });
  each_extension([&](size_t token, int32_t) {
    const int32_t length = scratch.per_token[token];
    if (length == 0) return;
    scratch.per_token[token] = 0;
    if (is_breaker(dry.breakers, static_cast<int32_t>(token))) return;
    logits[token] -= penalty(dry, length);
  });
}

}  // namespace pelton::sampling
