// One step as data: what the scheduler decided, in host integers only. The runner turns it into a
// StepBatch, runs it, and commit() folds the sampled tokens back. The spans point into storage of
// whoever made the plan (the scheduler's stays as it is until commit()); copying them out is enough
// to record a plan and replay it alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pelton::sched {

using SequenceId = uint64_t;

// Stands for a token that the step before has sampled but nobody has told yet (commit_ahead). Only
// as the last token of a sequence.
inline constexpr int32_t kPendingToken = -1;

// Copies a whole block's keys and values, all layers.
struct BlockCopy {
  int32_t source = 0;
  int32_t target = 0;
};

// The rows of one sequence in this step. `tokens` are its tokens at positions first_position .. +
// tokens.size() - 1.
struct SequenceStep {
  SequenceId sequence = 0;
  int32_t first_position = 0;
  std::span<const int32_t> tokens;
  std::span<const int32_t> blocks;  // block table covering first_position + tokens.size() tokens
  bool samples = false;             // last row's logits choose the next token
  // Prompt log-probabilities: logits of every row. After a preemption rows may come again; their
  // bits are the same.
  bool all_logits = false;
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
