// Plain passes over one row of logits. They are built for the baseline instruction set from
// arithmetic that no compiler may reorder, so results are the same on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/scratch.h"

namespace pelton::sampling {

struct RowScan {
  float max = 0.0f;
  bool has_distribution = false;  // no NaN, no +infinity, not all -infinity
};
RowScan scan_row(std::span<const float> logits);

// Lowest id among the highest logits; the row has no NaN.
int32_t argmax(std::span<const float> logits);

// values[i] = e^values[i] within 2 units in the last place; for values <= 0 (-infinity included).
void exp_nonpositive(std::span<float> values);

// ln(sum of e^(logit - max)).
double log_sum_exp(std::span<const float> logits, float max);

// The `k` highest logits above -infinity, ties by lower id, in no particular order. Weights unset.
void select_top_k(std::span<const float> logits, int32_t k, std::vector<Candidate>& out);

// weight = e^logit in fixed point, for logits <= 0.
inline constexpr int kWeightBits = 44;
inline constexpr float kWeightOne = 17592186044416.0f;  // 2^kWeightBits
void set_weights(std::span<Candidate> candidates);
// Every token of a row of logits <= 0 whose weight is not 0, ascending, weights set.
void select_weighty(std::span<const float> logits, std::vector<Candidate>& out);
uint64_t total_weight(std::span<const Candidate> candidates);

}  // namespace pelton::sampling
