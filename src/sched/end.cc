// Requests leave: blocks go back at once, the rest is kept until the next plan, because the plan
// under way and the last updates still point to it.
#include <algorithm>

#include "base/check.h"
#include "sched/scheduler_impl.h"

namespace pelton::sched {

void Scheduler::Impl::end(Unit* unit) {
  leave(unit, Place::kEnded);
  retire_later(unit);
}

// All of an end but its blocks, which padding keeps.
void Scheduler::Impl::leave(Unit* unit, Place next) {
  Job* job = unit->job;
  if (unit->place == Place::kRunning) {
    running_.erase(std::ranges::find(running_, unit));
    slots_ -= static_cast<int32_t>(unit->members.size());
  } else if (unit->place == Place::kWaiting) {
    waiting_.remove(unit);
  }
  unit->place = Place::kEnded;
  unit->place = next;
  live_ -= static_cast<int32_t>(unit->members.size());
  if (job->batch == batch_ && batch_ > 0 && --batch_live_ == 0) end_all_padding();
  if (--job->live_units == 0) {
    if (!job->admitted) --queued_jobs_;
  } else if (!job->prompt_done) {
    promote_leader(job);
  }
}

void Scheduler::Impl::retire_later(Unit* unit) {
  unit->place = Place::kEnded;
  for (Sequence& sequence : unit->members) {
    blocks_.clear(&sequence.table);
    blocks_.close(&sequence.table);
  }
  for (BeamScratch& scratch : unit->scratch) blocks_.close(&scratch.table);
  ended_.push_back(unit);
}

// Some live completion must be on its way to compute the prompt for the others.
void Scheduler::Impl::promote_leader(Job* job) {
  Unit* next = nullptr;
  for (const auto& unit : job->units) {
    if (unit->place == Place::kWaiting || unit->place == Place::kRunning) return;
    if (unit->place == Place::kAwaitsPrompt && next == nullptr) next = unit.get();
  }
  check(next != nullptr, "a live request has a live completion");
  next->place = Place::kWaiting;
  waiting_.push(next);
}

std::span<const SequenceUpdate> Scheduler::Impl::cancel(RequestId id, FinishReason reason) {
  cancelled_.clear();
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return {};
  Job* job = found->second.get();
  // Completions that wait for the prompt go first: none of them is made leader in between.
  for (auto it = job->units.rbegin(); it != job->units.rend(); ++it) {
    if (ended(**it)) continue;
    for (const Sequence& sequence : (*it)->members) {
      cancelled_.push_back({sequence.id, id, sequence.index, {}, reason});
    }
    end(it->get());
  }
  std::ranges::sort(cancelled_, {}, &SequenceUpdate::index);
  return cancelled_;
}

std::optional<SequenceUpdate> Scheduler::Impl::finish(SequenceId id, FinishReason reason) {
  Sequence* sequence = find(id);
  if (sequence == nullptr || ended(*sequence->unit)) return std::nullopt;
  check(!sequence->unit->is_group(), "a beam ends with its group");
  end_or_pad(sequence->unit);
  return SequenceUpdate{id, sequence->unit->job->id, sequence->index, {}, reason};
}

void Scheduler::Impl::retire() {
  for (Unit* unit : ended_) {
    for (const Sequence& sequence : unit->members) sequences_.erase(sequence.id);
    Job* job = unit->job;
    std::erase_if(job->units, [&](const auto& owned) { return owned.get() == unit; });
    if (job->units.empty()) jobs_.erase(job->id);
  }
  ended_.clear();
}

}  // namespace pelton::sched
