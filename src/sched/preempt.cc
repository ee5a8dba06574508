// Blocks taken back from running units that come later in the order than the one that asks, and
// from any that only wait. So the first of those that run is never taken from and always advances,
// nobody is admitted before the first of those that wait, and by induction every unit ends.
#include <algorithm>
#include <tuple>

#include "sched/scheduler_impl.h"

namespace pelton::sched {

bool Scheduler::Impl::ensure_blocks(const Unit& requester, FunctionRef<int32_t()> needed) {
  const kv::BlockPool& pool = blocks_.pool();
  while (!padding_.empty() && pool.available() < needed()) end_padding(padding_.back());
  if (pool.available() >= needed()) return true;
  // Nobody loses work for a unit that could not go on even so: it keeps its blocks and waits.
  int64_t most = pool.available();
  for (const Unit* unit : running_) {
    if (unit->key <= requester.key) continue;
    for (const Sequence& sequence : unit->members) most += sequence.table.size();
  }
  for (const Unit* unit : waiting_.units()) {
    if (unit == &requester) continue;
    for (const Sequence& sequence : unit->members) most += sequence.table.size();
  }
  if (most < needed()) return false;
  while (pool.available() < needed()) {
    if (drop_waiting_holder(requester)) continue;
    Unit* victim = choose_victim(requester);
    if (victim == nullptr) return false;
    preempt(victim);
  }
  return true;
}

// Of the later units: one whose blocks come free rather than stay with others, not one that was
// preempted often, of the lowest priority, that loses the least work, and the latest of those.
Unit* Scheduler::Impl::choose_victim(const Unit& requester) const {
  Unit* best = nullptr;
  auto score = [&](const Unit& unit) {
    bool frees = unit.is_group();
    int64_t work = 0;
    for (const Sequence& sequence : unit.members) {
      frees = frees || blocks_.sole_holder(sequence.table);
      work += sequence.computed;
    }
    const bool spared = unit.preemptions >= config_.max_preemptions;
    return std::tuple(frees, !spared, unit.job->priority, -work, unit.key);
  };
  for (Unit* unit : running_) {
    if (unit->key <= requester.key) continue;
    if (best == nullptr || score(*unit) > score(*best)) best = unit;
  }
  return best;
}

// A completion that was forked and waits for its turn holds its prompt's blocks; it can compute
// them again. What runs needs blocks more, even if it comes later: nothing that waits can be
// admitted before what runs has gone on.
bool Scheduler::Impl::drop_waiting_holder(const Unit& requester) {
  const OrderedUnits& units = waiting_.units();
  for (auto it = units.rbegin(); it != units.rend(); ++it) {
    Unit* unit = *it;
    if (unit == &requester || unit->members.front().table.blocks.empty()) continue;
    give_up_blocks(unit);
    return true;
  }
  return false;
}

void Scheduler::Impl::give_up_blocks(Unit* unit) {
  for (Sequence& sequence : unit->members) {
    sequence.lost = std::max(sequence.lost, sequence.computed);
    sequence.computed = 0;
    blocks_.clear(&sequence.table);
  }
}

void Scheduler::Impl::preempt(Unit* unit) {
  for (Sequence& sequence : unit->members) {
    budget_ += sequence.scheduled;
    logit_budget_ += sequence.logit_rows;
    sequence.logit_rows = 0;
    sequence.scheduled = 0;
    sequence.samples = false;
  }
  std::erase_if(planned_, [&](const Sequence* sequence) { return sequence->unit == unit; });
  for (const Sequence& sequence : unit->active()) plan_.preempted.push_back(sequence.id);
  give_up_blocks(unit);
  running_.erase(std::ranges::find(running_, unit));
  slots_ -= static_cast<int32_t>(unit->members.size());
  unit->place = Place::kWaiting;
  ++unit->preemptions;
  ++stats_.preemptions;
  waiting_.push(unit);
}

}  // namespace pelton::sched
