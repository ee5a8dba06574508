// Proof that a row's bits depend on its own tokens only: one prompt's logits, alone and in every
// kind of company.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace pelton::diag {

struct ProofCase {
  std::string name;  // "chunked at 7", "in a batch of 8", ...
  int64_t rows = 0;  // rows compared
  int64_t differing_rows = 0;
  bool exercised = false;  // the case really happened: rows were compared, a preemption took place
  std::string first_difference;  // "position 17: token 5: 1.25 against 1.5"; empty when equal
};

// Runs the prompt, continued greedily by `decode_tokens`, alone with one thread and whole chunks,
// then: in a batch of 8, with prompts cut at 1, 7 and 64 tokens, preempted by a pool that is too
// small, from the prefix cache, with 1, 2 and 3 threads. Compares every row's logits bit for bit.
Result<std::vector<ProofCase>> prove(std::shared_ptr<const engine::LoadedModel> loaded,
                                     const engine::EngineOptions& options,
                                     const std::vector<int32_t>& prompt, int32_t decode_tokens);

}  // namespace pelton::diag
