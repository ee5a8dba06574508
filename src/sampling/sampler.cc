#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/rng.h"
#include "sampling/row.h"
#include "sampling/stages.h"

namespace pelton::sampling {
namespace {

// Everything before temperature.
void adjust(const SamplingParams& params, std::span<const int32_t> breakers,
            const SamplerInput& input, SamplerScratch& scratch) {
  const History history{input.prompt, input.output};
  apply_logit_bias(input.logits, params.logit_bias);
  apply_suppressed(input.logits, input.suppressed);
  const Penalties penalties{params.repetition_penalty, params.presence_penalty,
                            params.frequency_penalty};
  if (penalties.repetition != 1.0f || penalties.presence != 0.0f || penalties.frequency != 0.0f) {
    apply_penalties(input.logits, history, penalties, scratch);
  }
  if (params.dry_multiplier > 0.0f) {
    apply_dry(input.logits, history,
              {params.dry_multiplier, params.dry_base, params.dry_allowed_length,
               params.dry_penalty_last_n, breakers},
              scratch);
  }
}

// From temperature to the draw.
int32_t choose(const SamplingParams& params, const SamplerInput& input, SamplerScratch& scratch) {
  apply_temperature(input.logits, params.temperature);
  select_candidates(input.logits, params.top_k, scratch);
  if (params.typical_p < 1.0f) apply_typical(scratch, params.typical_p);
  if (params.top_p < 1.0f) apply_top_p(scratch, params.top_p);
  if (params.min_p > 0.0f) apply_min_p(scratch, params.min_p);
  const size_t position = input.prompt.size() + input.output.size();
  return draw(scratch.candidates,
              uniform_random(input.seed, input.sequence_index, static_cast<uint32_t>(position)));
}

// The distribution that was drawn from: the candidates, renormalised.
TokenLogprobs candidate_logprobs(std::vector<Candidate>& candidates, int32_t chosen, int32_t top) {
  TokenLogprobs result;
  const auto total = static_cast<double>(total_weight(candidates));
  const auto logprob = [&](const Candidate& candidate) {
    return static_cast<float>(std::log(static_cast<double>(candidate.weight) / total));
  };
  const auto found = std::ranges::lower_bound(candidates, chosen, {}, &Candidate::token);
  result.chosen = {chosen, logprob(*found)};
  const auto count = std::min(candidates.size(), static_cast<size_t>(std::max(top, 0)));
  std::ranges::partial_sort(candidates, candidates.begin() + static_cast<std::ptrdiff_t>(count),
                            [](const Candidate& a, const Candidate& b) {
                              return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
                            });
  for (size_t i = 0; i < count; ++i) {
    result.top.push_back({candidates[i].token, logprob(candidates[i])});
  }
  return result;
}

}  // namespace

Sampler::Sampler(SamplingParams params, std::vector<int32_t> dry_breaker_ids)
    : params_(std::move(params)), dry_breaker_ids_(std::move(dry_breaker_ids)) {
  std::ranges::sort(dry_breaker_ids_);
}

Result<SampledRow> Sampler::sample(const SamplerInput& input, SamplerScratch& scratch) const {
  if (!scan_row(input.logits).has_distribution) {
    return internal_error("the model's logits hold NaN or infinity, or are all -infinity");
  }
  const bool want_logprobs = params_.logprobs >= 0;
  const bool raw = params_.logprobs_mode == SamplingParams::LogprobsMode::kRaw;
  if (want_logprobs && raw) scratch.raw.assign(input.logits.begin(), input.logits.end());

  adjust(params_, dry_breaker_ids_, input, scratch);
  if (!scan_row(input.logits).has_distribution) {
    return internal_error("logit bias and suppressed tokens leave no token to choose from");
  }
  SampledRow row;
  const bool greedy = params_.temperature == 0.0f;
  row.token = greedy ? argmax(input.logits) : choose(params_, input, scratch);
  if (!want_logprobs) return row;
  if (raw) {
    row.logprobs = row_logprobs(scratch.raw, row.token, params_.logprobs);
  } else if (greedy) {
    row.logprobs = row_logprobs(input.logits, row.token, params_.logprobs);
  } else {
    row.logprobs = candidate_logprobs(scratch.candidates, row.token, params_.logprobs);
  }
  return row;
}

}  // namespace pelton::sampling
