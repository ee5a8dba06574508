// From waiting to running. The first in the queue is admitted when a slot is free and the blocks of
// all its tokens are, beyond what running prompts still will take and one block for every running
// sequence, which it soon needs to go on (the watermark). Nobody overtakes the first.
#include <algorithm>

#include "sched/scheduler_impl.h"

namespace pelton::sched {

void Scheduler::Impl::admit() {
  if (config_.static_batching) open_batch();
  // A running unit that found no block has precedence over every newcomer.
  while (budget_ > 0 && !stalled_) {
    Unit* unit = next_waiting();
    if (unit == nullptr) return;
    if (slots_ + static_cast<int32_t>(unit->members.size()) > config_.max_num_seqs) return;
    if (!try_admit(unit)) return;
    extend(unit);
  }
}

Unit* Scheduler::Impl::next_waiting() const {
  for (Unit* unit : waiting_.units()) {
    if (!config_.static_batching || unit->job->batch == batch_) return unit;
  }
  return nullptr;
}

// The last token is always computed, because its logits are wanted; and so is the whole prompt when
// the logits of all its rows are.
void Scheduler::Impl::match_prefix(Unit* unit) {
  Sequence& first = unit->members.front();
  const Job& job = *unit->job;
  if (first.computed > 0) return;
  const bool all_rows = job.prompt_logits < job.wanted_logits();
  first.computed = blocks_.match(&first.table, first.tokens, all_rows ? 0 : first.size() - 1);
}

// Blocks beyond those it holds that a waiting unit needs to compute all its tokens.
int32_t Scheduler::Impl::blocks_to_admit(const Unit& unit) const {
  int32_t needed = 0;
  for (const Sequence& sequence : unit.active()) {
    needed += blocks_needed(sequence, sequence.size() - sequence.computed);
    if (&sequence != &unit.members.front()) {
      needed -= common_prefix(unit, sequence) / config_.block_tokens;
    }
  }
  return needed;
}

// Blocks that the prompts of running units will still take.
int32_t Scheduler::Impl::promised_blocks() const {
  int32_t promised = 0;
  for (const Unit* unit : running_) {
    for (const Sequence& sequence : unit->active()) {
      promised += std::max(blocks_.blocks_for(sequence.size()) - sequence.table.size(), 0);
    }
  }
  return promised;
}

bool Scheduler::Impl::try_admit(Unit* unit) {
  Sequence& first = unit->members.front();
  const bool held = first.computed > 0;
  match_prefix(unit);
  auto needed = [&] { return blocks_to_admit(*unit); };
  const bool fits = running_.empty()
                        ? ensure_blocks(*unit, needed)
                        : blocks_.pool().available() - promised_blocks() - slots_ >= needed();
  if (!fits) {
    if (!held) {
      blocks_.clear(&first.table);
      first.computed = 0;
    }
    return false;
  }
  Job* job = unit->job;
  if (!job->admitted) {
    job->admitted = true;
    --queued_jobs_;
    job->cached_prompt = first.computed;
  }
  if (!held && unit->preemptions == 0) {
    stats_.prefix_queries_tokens += first.size();
    stats_.prefix_hit_tokens += first.computed;
  }
  stats_.recomputed_tokens += std::max(first.lost - first.computed, 0);
  first.lost = 0;
  waiting_.remove(unit);
  unit->place = Place::kRunning;
  running_.insert(std::ranges::upper_bound(running_, unit, ByKey{}), unit);
  slots_ += static_cast<int32_t>(unit->members.size());
  return true;
}

}  // namespace pelton::sched
