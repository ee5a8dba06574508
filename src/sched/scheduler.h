// Decides what each step runs: admits waiting sequences, matches cached prefixes, cuts prompts into
// chunks, keeps decodes first, preempts by recompute when blocks run out. Host accounting only: no
// tensors, no devices, no threads (one caller).
//
// Order: running sequences decode first, then running prompts get their next chunks, then waiting
// ones are admitted, preempted ones before newcomers of the same priority. docs/scheduler.md tells
// the life of a sequence, how victims are chosen and why every request ends.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "pelton/request.h"
#include "sched/step_plan.h"

namespace pelton::sched {

struct SchedulerConfig {
  int32_t max_num_seqs = 16;
  int32_t max_num_batched_tokens = 512;  // tokens of one step, decodes and prompt chunks together
  // Rows of one step whose logits may be asked for, at least max_num_seqs; 0 = any number. Prompts
  // that want all of theirs come in smaller chunks for it.
  int32_t max_logit_rows = 0;
  int32_t max_model_len = 4096;
  int32_t block_tokens = 32;
  int32_t num_blocks = 0;
  int32_t max_waiting = 256;  // requests that may queue
  bool enable_prefix_caching = true;
  // A batch is admitted only when every sequence of the previous one has ended. Those that end
  // early are padding until its longest is done: each costs a row of every step.
  bool static_batching = false;
  // A sequence that lost its blocks this often is chosen again only when every other victim is so
  // protected too.
  int32_t max_preemptions = 3;
  // Steps of waiting that outweigh one class of priority, so that no class starves; 0 = never.
  int32_t priority_aging_steps = 8192;
  int32_t prefix_hash_bits = 128;  // fewer only in tests, which force collisions
  std::vector<int32_t> end_ids;    // end a sequence unless ignore_eos
};

// A token chosen for a sequence that `samples` in the plan.
struct SampledToken {
  SequenceId sequence = 0;
  int32_t token = 0;
};

// What commit() says of one sequence that got tokens or ended. `new_tokens` stays valid until the
// next plan().
struct SequenceUpdate {
  SequenceId sequence = 0;
  RequestId request = 0;
  int32_t index = 0;  // completion index within the request
  std::span<const int32_t> new_tokens;
  FinishReason finish = FinishReason::kNone;
};

struct SchedulerStats {
  int32_t running = 0;
  int32_t waiting = 0;
  int32_t free_blocks = 0;    // never used or reclaimable at once
  int32_t cached_blocks = 0;  // hold reusable prefixes, reclaimable
  int32_t total_blocks = 0;
  int64_t preemptions = 0;
  int64_t recomputed_tokens = 0;
  int64_t prefix_queries_tokens = 0;
  int64_t prefix_hit_tokens = 0;
  int64_t scheduled_tokens = 0;  // actual, summed over steps, without padding
  int64_t padding_tokens = 0;    // rows of static batches that nobody wants
  int64_t possible_tokens = 0;   // budget, summed over steps: their ratio is the batch efficiency
};

// What paging leaves unused: held blocks have room for `held_tokens` and hold `used_tokens`, each
// shared block counted once.
struct BlockUsage {
  int64_t held_tokens = 0;
  int64_t used_tokens = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);
  ~Scheduler();

  // Queues a request: `sampling.n` sequences (or one beam group of num_beams) that share the
  // prompt's blocks. Errors: kInvalidArgument (empty prompt, prompt + 1 over max_model_len, needs
  // more blocks than exist), kResourceExhausted (queue full). Returns the sequence ids in
  // completion order.
  Result<std::vector<SequenceId>> add(RequestId id, const Request& request);

  // Ends every sequence of the request now, at any point, also between plan() and commit(); its
  // blocks are free before the next plan(). Unknown or ended ids are ignored. Gives the updates of
  // what ended, with `reason`; they stay valid until the next cancel(). Takes no memory.
  std::span<const SequenceUpdate> cancel(RequestId id,
                                         FinishReason reason = FinishReason::kCancelled);
  // Ends one sequence, e.g. on a stop string found in its text. Not for beams.
  std::optional<SequenceUpdate> finish(SequenceId id, FinishReason reason);

  // The next step; empty when nothing can run. Must be followed by commit() of the same plan, until
  // which the plan and what it points to stay valid.
  const StepPlan& plan();

  // Folds the step back: advances computed positions, appends sampled tokens, hashes full blocks
  // into the prefix tree, applies token-level stops (end ids, stop_token_ids, max_tokens,
  // max_model_len). Sequences cancelled since plan() are skipped. `sampled` must name each live
  // sampling sequence of the plan once (beam groups: through commit_beams); ended ones are ignored.
  // After a failed step: cancel() its requests, then commit the plan with nothing sampled. The
  // updates stay valid until the next plan().
  std::span<const SequenceUpdate> commit(const StepPlan& plan,
                                         std::span<const SampledToken> sampled);

  // Instead of commit(), before the step's tokens are known: sequences that sampled get a pending
  // token, and the next plan can be made while the step runs. The updates are of sequences that end
  // without a token; they stay valid until the next plan(). Not for beams.
  std::span<const SequenceUpdate> commit_ahead(const StepPlan& plan);
  // The tokens of the step that was last committed ahead, once the next one is planned or before.
  // Names each live sequence with a pending token once; others are ignored. Updates as commit().
  std::span<const SequenceUpdate> resolve(std::span<const SampledToken> sampled);

  // One beam step: live beam i of the group becomes a fork of `parents[i]` extended by `tokens[i]`
  // (both as many as num_beams; ids stay with their place). The prompt runs as beam 0 alone, so the
  // first step's parents all name it. Blocks are shared and copied on write. Called before commit()
  // of the same plan, for each beam group whose sequences sampled. End ids do not end a beam: the
  // caller keeps finished hypotheses and ends the group with cancel(id, kStop); at max_tokens or
  // the context's end commit() ends it with kLength. Ignored when the group has ended.
  void commit_beams(RequestId id, std::span<const SequenceId> parents,
                    std::span<const int32_t> tokens);

  // Tokens of a sequence, prompt first. Of an ended one until the next plan(), then empty.
  std::span<const int32_t> tokens(SequenceId id) const;
  int32_t prompt_length(SequenceId id) const;
  int32_t cached_prompt_tokens(SequenceId id) const;

  bool idle() const;  // nothing waiting, nothing running
  SchedulerStats stats() const;
  BlockUsage block_usage() const;  // walks every table
  // Every reference count, table, tree node and queue agrees with every other; the first
  // contradiction as text.
  Status check_integrity() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pelton::sched
