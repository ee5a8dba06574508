// A step folded back before its tokens are known, and the tokens when they are. Lengths are known
// ahead; what a token itself ends is found when it is resolved, when the sequence may have a row in
// the next plan already.
#include "base/check.h"
#include "sched/scheduler_impl.h"

namespace pelton::sched {

// Its pending token is its last: nothing is left to compute.
bool Scheduler::Impl::awaits_its_end(const Unit& unit) {
  const Sequence& sequence = unit.members.front();
  return sequence.pending && sequence.size() >= unit.job->max_length;
}

std::span<const SequenceUpdate> Scheduler::Impl::commit_ahead(const StepPlan& plan) {
  updates_.clear();  // those of the step before were told when it was resolved
  fold_back(plan, [](Sequence* sequence) {
    check(!sequence->pending, "a step is resolved before the next one is committed ahead");
    sequence->tokens.push_back(kPendingToken);
    sequence->pending = true;
  });
  return updates_;
}

std::span<const SequenceUpdate> Scheduler::Impl::resolve(std::span<const SampledToken> sampled) {
  updates_.clear();
  for (const SampledToken& chosen : sampled) {
    Sequence* sequence = find(chosen.sequence);
    if (sequence == nullptr || ended(*sequence->unit) || !sequence->pending) continue;
    sequence->pending = false;
    sequence->tokens.back() = chosen.token;
    const FinishReason reason = stop_reason(*sequence);
    report(*sequence, 1, reason);
    if (reason != FinishReason::kNone) end_or_pad(sequence->unit);
  }
  return updates_;
}

}  // namespace pelton::sched
