#include <algorithm>

#include "base/check.h"
#include "sampling/row.h"
#include "sampling/stages.h"

namespace pelton::sampling {

int32_t draw(std::span<const Candidate> candidates, double uniform) {
  const uint64_t total = total_weight(candidates);
  check(total > 0, "drawing from candidates without weight");
  // The product may round up to the total.
  uint64_t rest = std::min(static_cast<uint64_t>(uniform * static_cast<double>(total)), total - 1);
  for (const Candidate& candidate : candidates) {
    if (rest < candidate.weight) return candidate.token;
    rest -= candidate.weight;
  }
  return candidates.back().token;
}

}  // namespace pelton::sampling
