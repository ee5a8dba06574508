#include "sampling/mass.h"

#include "sampling/row.h"

namespace pelton::sampling {

// Halves the range at its median until one element is left.
Candidate find_boundary(std::span<Candidate> range, uint64_t target) {
  while (range.size() > 1) {
    const size_t half = range.size() / 2;
    std::nth_element(range.begin(), range.begin() + static_cast<std::ptrdiff_t>(half), range.end(),
                     key_before);
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

uint64_t mass_target(uint64_t total, float p) {
  const double share = static_cast<double>(p) * static_cast<double>(total);
  if (!(share < static_cast<double>(total))) return 0;
  const auto target = static_cast<uint64_t>(share);
  return target == 0 || static_cast<double>(target) < share ? target + 1 : target;
}

}  // namespace pelton::sampling
