// Beam search with the semantics of Hugging Face transformers (length_penalty, early_stopping,
// num_return_sequences): keeps `num_beams` live hypotheses and the best finished ones. Knows
// log-probabilities and tokens only; the scheduler forks blocks as told.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pelton/sampling_params.h"

namespace pelton::sampling {

struct BeamHypothesis {
  std::vector<int32_t> tokens;  // output only, end token included as transformers returns it
  float score = 0.0f;           // sum of log-probabilities / length^length_penalty
};

class BeamSearch {
 public:
  BeamSearch(const SamplingParams& params, std::vector<int32_t> end_ids, int32_t prompt_length,
             int32_t max_tokens);

  struct Step {
    std::vector<int32_t>
        parents;  // for each live beam of the next step: index of the live beam it extends
    std::vector<int32_t> tokens;
    bool done = false;  // no further step is needed; parents and tokens are then empty
  };
  // `logits`: one row of raw logits for each live beam, in order. The first call has one live beam
  // (the prompt).
  Step advance(std::span<const std::span<float>> logits);

  int32_t num_live() const;
  // Best first, at most `n`; call when done or when cut by the token limit.
  std::vector<BeamHypothesis> finish(int32_t n);

 private:
  struct Beam {
    std::vector<int32_t> tokens;
    float sum = 0.0f;
  };
  SamplingParams params_;
  std::vector<int32_t> end_ids_;
  int32_t prompt_length_ = 0;
  int32_t max_tokens_ = 0;
  std::vector<Beam> live_;
  std::vector<BeamHypothesis> finished_;
};

}  // namespace pelton::sampling
