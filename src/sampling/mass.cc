#include "sampling/mass.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>

#include "sampling/row.h"

namespace pelton::sampling {
namespace {

using Key = FunctionRef<float(const Candidate&)>;

constexpr size_t kBuckets = 1024;

// In `selection` the key stands in place of the logit.
bool before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit < b.logit : a.token < b.token;
}

// The last element of the prefix that reaches `target`, found by halving the range at its median;
// 1 <= `target` <= the range's mass.
Candidate find_boundary(std::span<Candidate> range, uint64_t target) {
  while (range.size() > 1) {
    const size_t half = range.size() / 2;
    std::nth_element(range.begin(), range.begin() + static_cast<std::ptrdiff_t>(half), range.end(),
                     before);
    const uint64_t mass = total_weight(range.first(half));
    if (mass >= target) {
      range = range.first(half);
    } else {
      target -= mass;
      range = range.subspan(half);
    }
  }
  return range[0];
}

// Gathers in `selection` the only candidates that need exact ordering: those of the bucket, of a
// monotone map of the key, in which the mass is reached. Returns what they have to supply.
uint64_t gather_crossing(std::span<const Candidate> candidates, uint64_t target, Key key,
                         std::vector<Candidate>& selection) {
  float low = std::numeric_limits<float>::infinity();
  float high = -low;
  for (const Candidate& candidate : candidates) {
    const float value = key(candidate);
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const float scale = high > low ? static_cast<float>(kBuckets) / (high - low) : 0.0f;
  const auto bucket_of = [&](float value) {
    return static_cast<size_t>(std::min((value - low) * scale, static_cast<float>(kBuckets - 1)));
  };
  std::array<uint64_t, kBuckets> mass{};
  for (const Candidate& candidate : candidates) {
    mass[bucket_of(key(candidate))] += candidate.weight;
  }
  size_t crossing = 0;
  while (mass[crossing] < target) target -= mass[crossing++];
  selection.clear();
  for (const Candidate& candidate : candidates) {
    const float value = key(candidate);
    if (bucket_of(value) == crossing) {
      selection.push_back({value, candidate.token, candidate.weight});
    }
  }
  return target;
}

}  // namespace

void keep_mass(std::vector<Candidate>& candidates, float p, Key key,
               std::vector<Candidate>& selection) {
  const auto total = static_cast<double>(total_weight(candidates));
  const double share = static_cast<double>(p) * total;
  if (!(share < total)) return;
  auto target = static_cast<uint64_t>(share);
  if (target == 0 || static_cast<double>(target) < share) ++target;
  target = gather_crossing(candidates, target, key, selection);
  const Candidate last = find_boundary(selection, target);
  std::erase_if(candidates, [&](const Candidate& candidate) {
    return before(last, {key(candidate), candidate.token, 0});
  });
}

}  // namespace pelton::sampling
