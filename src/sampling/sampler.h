// From one row of logits to one token: a pipeline of named stages (stages.h), each a pure function
// of (logits, params, history). A draw is keyed by (seed, sequence index, position), so it does not
// depend on batch-mates or on what ran before.
//
// Order: logit bias, suppressed ids, repetition / presence / frequency penalties, DRY, temperature,
// top-k, typical, top-p, min-p, draw. Temperature 0 is argmax after DRY (lowest id among equals).
// All results are finite.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "pelton/request.h"
#include "pelton/sampling_params.h"
#include "sampling/scratch.h"

namespace pelton::sampling {

struct SamplerInput {
  std::span<float> logits;  // [vocab_size]; overwritten
  std::span<const int32_t> prompt;
  std::span<const int32_t> output;  // tokens generated so far
  uint64_t seed = 0;
  uint32_t sequence_index = 0;          // completion index: keys the draw
  std::span<const int32_t> suppressed;  // ids that must not be chosen (end ids before min_tokens)
};

struct SampledRow {
  int32_t token = 0;
  TokenLogprobs logprobs;  // filled when params.logprobs >= 0
};

// Parameters made ready once a request. Immutable, so rows may be sampled by several threads at
// once, each with its own scratch.
class Sampler {
 public:
  // `params` are valid (validate()). `dry_breaker_ids`: ids whose text contains a sequence breaker,
  // in any order.
  Sampler(SamplingParams params, std::vector<int32_t> dry_breaker_ids);

  // kInternal when a logit is NaN or +infinity or none is left to choose from: that request ends,
  // its neighbours go on. The draw is keyed by the absolute position prompt + output, so a
  // completion resubmitted as a prompt continues alike. Does not allocate in steady state unless
  // log-probabilities are asked for.
  Result<SampledRow> sample(const SamplerInput& input, SamplerScratch& scratch) const;

  const SamplingParams& params() const { return params_; }

 private:
  SamplingParams params_;
  std::vector<int32_t> dry_breaker_ids_;  // ascending
};

// Log-softmax of a row at one id and at its `top` most likely ids, best first, ties by lower id.
// Values are finite: what is below kLogprobFloor (or not a number) becomes kLogprobFloor, and ids
// of probability 0 are left out of the top.
inline constexpr float kLogprobFloor = -9999.0f;
TokenLogprobs row_logprobs(std::span<const float> logits, int32_t chosen, int32_t top);

}  // namespace pelton::sampling
