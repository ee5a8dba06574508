// Selection by probability mass without sorting the vocabulary.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sampling/scratch.h"

namespace pelton::sampling {

// Ascending by the key, which stands in place of the logit, then by token.
inline bool key_before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit < b.logit : a.token < b.token;
}

// The last element of the shortest prefix of `range`, in the order above, whose weight reaches
// `target`; 1 <= target <= the range's weight. Reorders the range.
Candidate find_boundary(std::span<Candidate> range, uint64_t target);

// Weight that reaches share `p` of `total`; 0 when that is all of it.
uint64_t mass_target(uint64_t total, float p);

// Removes without branches on the outcome, which no predictor could guess in id order.
template <typename Keep>
void keep_if(std::vector<Candidate>& candidates, Keep keep) {
  size_t count = 0;
  for (const Candidate candidate : candidates) {
    candidates[count] = candidate;
    count += keep(candidate) ? 1 : 0;
  }
  candidates.resize(count);
}

// Keeps the shortest prefix of `candidates`, ordered ascending by (key, token), whose weight
// reaches share `p` of the total; at least one. `key` is a pure function with finite values;
// candidates have weight and keep their order. Time linear in their number: buckets by a monotone
// map of the key tell where the mass is reached, and only that bucket is ordered exactly.
// `selection` is work space.
template <typename Key>
void keep_mass(std::vector<Candidate>& candidates, float p, Key key,
               std::vector<Candidate>& selection) {
  constexpr size_t kBuckets = 1024;
  // Keys of candidates with weight lie in [0, 31); others are correct too, only slower.
  constexpr float kScale = static_cast<float>(kBuckets) / 31.0f;
  const auto bucket_of = [](float value) {
    const float bounded =
        std::min(std::max(value * kScale, 0.0f), static_cast<float>(kBuckets - 1));
    return static_cast<size_t>(static_cast<int32_t>(bounded));
  };
  std::array<uint64_t, kBuckets> mass{};
  uint64_t total = 0;
  for (const Candidate& candidate : candidates) {
    mass[bucket_of(key(candidate))] += candidate.weight;
    total += candidate.weight;
  }
  uint64_t target = mass_target(total, p);
  if (target == 0) return;
  size_t crossing = 0;
  while (mass[crossing] < target) target -= mass[crossing++];
  selection.clear();
  for (const Candidate& candidate : candidates) {
    const float value = key(candidate);
    if (bucket_of(value) == crossing) {
      selection.push_back({value, candidate.token, candidate.weight});
    }
  }
  const Candidate last = find_boundary(selection, target);
  keep_if(candidates, [&](const Candidate& candidate) {
    return !key_before(last, {key(candidate), candidate.token, 0});
  });
}

}  // namespace pelton::sampling
