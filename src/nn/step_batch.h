// All that a forward may see of a step: the rows of every sequence laid end to end, where their
// keys and values go, and which rows need logits. Host integers; spans live as long as the step.
#pragma once

#include <cstdint>
#include <span>

#include "ops/attention.h"

namespace pelton::nn {

struct StepBatch {
  std::span<const int32_t> token_ids;  // [T]
  std::span<const int32_t> positions;  // [T]
  std::span<const int32_t> slots;      // [T] page slot of each row
  std::span<const kernels::SequenceSlice> sequences;
  std::span<const int32_t> logit_rows;  // rows whose logits are wanted, ascending

  int64_t num_tokens() const { return static_cast<int64_t>(token_ids.size()); }
};

}  // namespace pelton::nn
