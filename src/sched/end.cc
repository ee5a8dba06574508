// Requests leave: blocks go back at once, the rest is kept until the next plan, because the plan
// under way and the last updates still point to it.
#include <algorithm>

#include "base/check.h"
#include "sched/scheduler_impl.h"

namespace pelton::sched {

void Scheduler::Impl::end(Unit* unit) {
  Job* job = unit->job;
  if (unit->place == Place::kRunning) {
    running_.erase(std::ranges::find(running_, unit));
    slots_ -= static_cast<int32_t>(unit->members.size());
  } else if (unit->place == Place::kWaiting) {
    waiting_.remove(unit);
  }
  unit->place = Place::kEnded;
  for (Sequence& sequence : unit->members) {
    blocks_.clear(&sequence.table);
    blocks_.close(&sequence.table);
  }
  for (BeamScratch& scratch : unit->scratch) blocks_.close(&scratch.table);
  live_ -= static_cast<int32_t>(unit->members.size());
  ended_.push_back(unit);
  if (job->batch == batch_ && batch_ > 0) --batch_live_;
  if (--job->live_units == 0) {
    if (!job->admitted) --queued_jobs_;
  } else if (!job->prompt_done) {
    promote_leader(job);
  }
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
  end(sequence->unit);
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
