// Buffers that sampling one row needs, kept from row to row so that a step does not allocate.
#pragma once

#include <cstdint>
#include <vector>

namespace pelton::sampling {

// A token still in the running. `weight` is its probability times an unknown constant in fixed
// point, the most likely token having 2^44: sums of weights are exact in any order, so selecting by
// mass gives the same set however it is computed.
struct Candidate {
  float logit = 0.0f;  // after temperature, relative to the best: <= 0
  int32_t token = 0;
  uint64_t weight = 0;
};

// One a thread that samples.
struct SamplerScratch {
  SamplerScratch() = default;
  // Reserves for rows of `vocab_size` and histories of `max_model_len`.
  SamplerScratch(int32_t vocab_size, int32_t max_model_len) { reserve(vocab_size, max_model_len); }

  void reserve(int32_t vocab_size, int32_t max_model_len);
  // What reserve() takes, for the memory plan.
  static int64_t bytes(int32_t vocab_size, int32_t max_model_len);

  std::vector<Candidate> candidates;  // ascending by token between stages
  std::vector<Candidate> selection;   // work space of the selections
  std::vector<float> raw;             // the model's own logits, when their log-probabilities count
  std::vector<int32_t> per_token;     // [vocab_size]; all zero between stages
  std::vector<int32_t> per_position;  // [history]; work space of DRY
};

}  // namespace pelton::sampling
