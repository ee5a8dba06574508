// Beam search with the semantics of Hugging Face transformers (length_penalty, early_stopping,
// num_return_sequences): keeps `num_beams` live hypotheses and the best finished ones. Knows
// log-probabilities and tokens only; the scheduler forks blocks as told.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "pelton/sampling_params.h"
#include "sampling/scratch.h"

namespace pelton::sampling {

struct BeamHypothesis {
  std::vector<int32_t> tokens;  // output only, end token included as transformers returns it
  float score = 0.0f;           // sum of log-probabilities / length^length_penalty
};

class BeamSearch {
 public:
  // `end_ids`: tokens that finish a hypothesis; empty for none. `max_tokens` >= 1: length limit of
  // the output, already clamped to the context's end.
  BeamSearch(const SamplingParams& params, std::vector<int32_t> end_ids, int32_t max_tokens);

  struct Step {
    std::vector<int32_t>
        parents;  // for each live beam of the next step: index of the live beam it extends
    std::vector<int32_t> tokens;
    bool done = false;  // no further step is needed; parents and tokens are then empty
  };
  // `logits`: one row of raw logits for each live beam, in order. The first call has one live beam
  // (the prompt). kInternal when a row has no distribution (NaN, +infinity, all -infinity).
  Result<Step> advance(std::span<const std::span<float>> logits);

  int32_t num_live() const { return static_cast<int32_t>(live_.size()); }
  // Output so far of a live beam.
  std::span<const int32_t> live_tokens(int32_t beam) const;
  // Best first, at most `n`. Where the search was cut before it was done, live beams fill up the
  // list after the finished ones.
  std::vector<BeamHypothesis> finish(int32_t n) const;

 private:
  struct Beam {
    std::vector<int32_t> tokens;
    float sum = 0.0f;  // of log-probabilities
  };
  struct Extension {
    float sum = 0.0f;
    int32_t parent = 0;
    int32_t token = 0;
  };
  Status collect(std::span<const std::span<float>> logits);
  void add_finished(const Extension& extension);
  float score(float sum, int32_t length) const;
  bool can_improve(float best_sum, int32_t length) const;
  bool is_end(int32_t token) const;

  SamplingParams params_;
  std::vector<int32_t> end_ids_;
  int32_t max_tokens_ = 0;
  std::vector<Beam> live_;
  std::vector<BeamHypothesis> finished_;  // best first, at most num_beams
  std::vector<Extension> extensions_;     // best first, of the current step
  std::vector<Candidate> selection_;
};

}  // namespace pelton::sampling
