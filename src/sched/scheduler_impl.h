// State and inner operations of the scheduler, one source file a concern.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/function_ref.h"
#include "kv/blocks/block_manager.h"
#include "sched/queue.h"
#include "sched/scheduler.h"
#include "sched/sequence.h"

namespace pelton::sched {

struct Scheduler::Impl {
  explicit Impl(const SchedulerConfig& config);

  // add.cc: requests enter
  Result<std::vector<SequenceId>> add(RequestId id, const Request& request);
  Status refuse(const Request& request) const;
  int32_t pool_length(const Request& request) const;
  int32_t longest(const Request& request) const;
  void add_unit(Job* job, const Request& request, int32_t first_index, int32_t members);
  void withdraw(Job* job);

  // end.cc: and leave
  std::span<const SequenceUpdate> cancel(RequestId id, FinishReason reason);
  std::optional<SequenceUpdate> finish(SequenceId id, FinishReason reason);
  void end(Unit* unit);
  void leave(Unit* unit, Place next);
  void retire_later(Unit* unit);
  void promote_leader(Job* job);
  void retire();

  // plan.cc: one step's rows
  const StepPlan& plan();
  void decode_running();
  void decode(Unit* unit);
  void extend_running();
  void write_plan();
  bool wants_all_logits(const Sequence& sequence, int32_t rows) const;
  bool would_sample(const Sequence& sequence, int32_t rows) const;
  int32_t logit_rows(const Sequence& sequence, int32_t rows) const;
  int32_t affordable(const Sequence& sequence, int32_t rows) const;
  bool schedule(Sequence* sequence, int32_t rows);
  int32_t blocks_needed(const Sequence& sequence, int32_t rows) const;
  int32_t blocks_needed_to_decode(const Unit& unit) const;
  void place_rows(Sequence* sequence, int32_t rows);
  void extend(Unit* unit);
  bool decodes(const Unit& unit) const;

  // admit.cc: from waiting to running
  void admit();
  bool try_admit(Unit* unit);
  Unit* next_waiting() const;
  void match_prefix(Unit* unit);
  int32_t blocks_to_admit(const Unit& unit) const;
  int32_t promised_blocks() const;

  // static_batch.cc
  void open_batch();
  void end_or_pad(Unit* unit);
  void end_padding(Unit* unit);
  void end_all_padding();
  void place_padding();

  // preempt.cc: blocks taken back
  // What is needed may shrink while others let go of blocks they shared.
  bool ensure_blocks(const Unit& requester, FunctionRef<int32_t()> needed);
  Unit* choose_victim(const Unit& requester) const;
  bool drop_waiting_holder(const Unit& requester);
  void preempt(Unit* unit);
  void give_up_blocks(Unit* unit);

  // commit.cc: results folded back
  std::span<const SequenceUpdate> commit(const StepPlan& plan,
                                         std::span<const SampledToken> sampled);
  void take_tokens(std::span<const SampledToken> sampled);
  void fold_back(const StepPlan& plan, FunctionRef<void(Sequence*)> append);
  void advance(Sequence* sequence);
  void fork_completions(Job* job, const Sequence& leader);
  void append(Sequence* sequence);
  FinishReason stop_reason(const Sequence& sequence) const;
  void end_prompt_only(Unit* unit);

  // ahead.cc: the same before and after tokens are known
  std::span<const SequenceUpdate> commit_ahead(const StepPlan& plan);
  std::span<const SequenceUpdate> resolve(std::span<const SampledToken> sampled);
  static bool awaits_its_end(const Unit& unit);

  // beams.cc
  void commit_beams(RequestId id, std::span<const SequenceId> parents,
                    std::span<const int32_t> tokens);
  void rearrange(Unit* unit);
  void fork_beams(Unit* unit);
  static int32_t common_prefix(const Unit& unit, const Sequence& beam);

  // integrity.cc
  Status check_integrity() const;
  Status check_unit(const Unit& unit) const;
  BlockUsage block_usage() const;
  SchedulerStats stats() const;

  Sequence* find(SequenceId id) const;
  static bool ended(const Unit& unit) {
    return unit.place == Place::kEnded || unit.place == Place::kPadding;
  }
  void report(const Sequence& sequence, int32_t new_tokens, FinishReason finish);

  SchedulerConfig config_;
  kv::BlockManager blocks_;
  std::unordered_map<RequestId, std::unique_ptr<Job>> jobs_;
  std::unordered_map<SequenceId, Sequence*> sequences_;
  WaitingQueue waiting_;
  std::vector<Unit*> running_;  // in order of their keys
  std::vector<Unit*> ended_;    // since the last plan
  int32_t slots_ = 0;           // members of running units
  int32_t live_ = 0;            // sequences that have not ended
  int32_t queued_jobs_ = 0;     // never admitted
  SequenceId next_sequence_ = 1;
  uint64_t next_arrival_ = 0;
  uint64_t batch_ = 0;  // static batching: the current batch and its units that have not ended
  int32_t batch_live_ = 0;
  std::vector<Unit*> padding_;

  StepPlan plan_;
  std::vector<Sequence*> planned_;  // parallel to plan_.sequences
  bool outstanding_ = false;        // plan_ is not committed
  int32_t budget_ = 0;              // rows left in the step being planned
  int32_t logit_budget_ = 0;        // of them, rows whose logits may be asked for
  bool stalled_ = false;            // a running unit found no block in the step being planned
  std::vector<SequenceUpdate> updates_;
  std::vector<SequenceUpdate> cancelled_;  // by the last cancel(); room for the widest request
  SchedulerStats stats_;
};

}  // namespace pelton::sched
