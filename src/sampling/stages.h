// The stages of the sampling pipeline, in their order. docs/sampling.md gives formulas and papers.
// Those before top-k work on the whole row, those after it on the candidates that are left, which
// stay ascending by token. Ids outside the row are skipped.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sampling/scratch.h"

namespace pelton::sampling {

// Prompt and output of a sequence read as one list of tokens.
struct History {
  std::span<const int32_t> prompt;
  std::span<const int32_t> output;

  int64_t size() const { return static_cast<int64_t>(prompt.size() + output.size()); }
  // i = 0 is the newest token.
  int32_t from_end(int64_t i) const {
    const auto newest = static_cast<int64_t>(output.size());
    return i < newest ? output[static_cast<size_t>(newest - 1 - i)]
                      : prompt[static_cast<size_t>(size() - 1 - i)];
  }
};

// logit += bias. An id listed twice gets both.
void apply_logit_bias(std::span<float> logits, std::span<const std::pair<int32_t, float>> bias);

// logit = -infinity.
void apply_suppressed(std::span<float> logits, std::span<const int32_t> suppressed);

// Repetition over the distinct tokens of prompt and output; presence and frequency over the output.
struct Penalties {
  float repetition = 1.0f;
  float presence = 0.0f;
  float frequency = 0.0f;
};
void apply_penalties(std::span<float> logits, const History& history, const Penalties& penalties,
                     SamplerScratch& scratch);

// Lowers the logit of each token that would extend a repetition of `allowed_length` or more tokens.
// `breakers` ascending: a repetition does not reach across one, and they are never penalised
// themselves.
struct Dry {
  float multiplier = 0.0f;
  float base = 1.75f;
  int32_t allowed_length = 2;
  int32_t penalty_last_n = -1;
  std::span<const int32_t> breakers;
};
void apply_dry(std::span<float> logits, const History& history, const Dry& dry,
               SamplerScratch& scratch);

// logit = (logit - max) / temperature, temperature > 0. Subtracting first keeps every value at or
// below 0, so no temperature overflows to a NaN.
void apply_temperature(std::span<float> logits, float temperature);

// Candidates of the `k` highest logits, ties by lower id; k <= 0 takes every token. Sets the
// weights and drops tokens of weight 0, which could never be drawn.
void select_candidates(std::span<const float> logits, int32_t k, SamplerScratch& scratch);

// Keeps the tokens whose information content is closest to the entropy, up to mass `p`.
void apply_typical(SamplerScratch& scratch, float p);
// Keeps the most likely tokens, up to mass `p` of the candidates.
void apply_top_p(SamplerScratch& scratch, float p);
// Keeps the tokens at least `p` times as likely as the best.
void apply_min_p(SamplerScratch& scratch, float p);

// Inverse of the cumulative distribution in id order at `uniform` in [0, 1). There is a candidate
// with weight.
int32_t draw(std::span<const Candidate> candidates, double uniform);

}  // namespace pelton::sampling
