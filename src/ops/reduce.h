// Reductions over one row of logits, for samplers. Run on the widest level of this machine and on
// the calling thread. NaN never wins and is never a candidate.
#pragma once

#include <cstdint>
#include <span>

namespace pelton::ops {

// Index of the largest element, the lowest among equals. The row must not be empty; one of NaNs
// alone gives 0.
int32_t argmax(std::span<const float> row);

// log(sum(exp(row))): the maximum is subtracted first and the sum is taken in double.
double log_sum_exp(std::span<const float> row);

struct Candidate {
  int32_t id = 0;
  float value = 0.0f;
};
// Scratch that top_k needs.
constexpr int64_t top_k_scratch(int32_t k) { return 2 * int64_t{k} + 1024; }
// The k largest elements (fewer if the row has fewer), largest first, equal ones by ascending id.
// The answer lies in `scratch` (at least top_k_scratch(k)); nothing is allocated.
std::span<Candidate> top_k(std::span<const float> row, int32_t k, std::span<Candidate> scratch);

}  // namespace pelton::ops
