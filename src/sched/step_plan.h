// One step as data: what the scheduler decided, in host integers only. The runner turns it into a
// StepBatch, runs it, and commit() folds the sampled tokens back. A plan can be recorded and
// replayed alone.
#pragma once

#include <cstdint>
#include <vector>

namespace pelton::sched {

using SequenceId = uint64_t;

struct BlockCopy {
  int32_t source = 0;
  int32_t target = 0;
};

// The rows of one sequence in this step. `tokens` are its tokens at positions first_position .. +
// tokens.size() - 1.
struct SequenceStep {
  SequenceId sequence = 0;
  int32_t first_position = 0;
  std::vector<int32_t> tokens;
  std::vector<int32_t> blocks;  // block table covering first_position + tokens.size() tokens
  bool samples = false;         // last row's logits choose the next token
  bool all_logits = false;      // prompt log-probabilities: logits of every row
};

struct StepPlan {
  uint64_t step = 0;
  std::vector<BlockCopy> copies;  // to be done before the forward, in order
  std::vector<SequenceStep> sequences;
  int32_t num_tokens = 0;             // sum over sequences, <= max_num_batched_tokens
  std::vector<SequenceId> preempted;  // lost their blocks in this plan and wait again

  bool empty() const { return sequences.empty(); }
};

}  // namespace pelton::sched
