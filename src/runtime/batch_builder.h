// StepPlan -> StepBatch: flattens the plan's sequences into rows, positions, page slots and slices.
// Storage is kept from step to step, so that a warm builder does not allocate.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/step_batch.h"
#include "sched/step_plan.h"

namespace pelton::runtime {

class BatchBuilder {
 public:
  BatchBuilder(int32_t max_tokens, int32_t max_sequences, int32_t block_tokens);

  // Valid until the next call; refers to the plan's block tables, which must live as long.
  nn::StepBatch build(const sched::StepPlan& plan);

  // For each of the plan's sequences, the first of its rows among the logits and how many there
  // are.
  struct LogitRange {
    int32_t first = 0;
    int32_t count = 0;
  };
  std::span<const LogitRange> logit_ranges() const { return logit_ranges_; }

 private:
  int32_t block_tokens_;
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> slots_;
  std::vector<kernels::SequenceSlice> slices_;
  std::vector<int32_t> logit_rows_;
  std::vector<LogitRange> logit_ranges_;
};

}  // namespace pelton::runtime
