#include <algorithm>
#include <cmath>

#include "sampling/row.h"
#include "sampling/sampler.h"

namespace pelton::sampling {
namespace {

// The negated comparison takes NaN to the floor too.
float floored(double logprob) {
  return !(logprob > static_cast<double>(kLogprobFloor)) ? kLogprobFloor
                                                         : static_cast<float>(logprob);
}

}  // namespace

TokenLogprobs row_logprobs(std::span<const float> logits, int32_t chosen, int32_t top) {
  TokenLogprobs result;
  result.chosen = {chosen, kLogprobFloor};
  const RowScan scan = scan_row(logits);
  if (!scan.has_distribution) return result;
  const double log_sum = log_sum_exp(logits, scan.max);
  const auto logprob = [&](float logit) {
    return floored(static_cast<double>(logit) - static_cast<double>(scan.max) - log_sum);
  };
  if (chosen >= 0 && static_cast<size_t>(chosen) < logits.size()) {
    result.chosen.logprob = logprob(logits[static_cast<size_t>(chosen)]);
  }
  std::vector<Candidate> best;
  select_top_k(logits, top, best);
  std::ranges::sort(best, [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  });
  result.top.reserve(best.size());
  for (const Candidate& candidate : best) {
    result.top.push_back({candidate.token, logprob(candidate.logit)});
  }
  return result;
}

}  // namespace pelton::sampling
