// Results folded back: positions advance, full blocks become known to the prefix tree, tokens are
// appended, sequences that are done end.
#include <algorithm>

#include "base/check.h"
#include "sched/scheduler_impl.h"

namespace pelton::sched {

void Scheduler::Impl::report(const Sequence& sequence, int32_t new_tokens, FinishReason finish) {
  updates_.push_back({sequence.id, sequence.unit->job->id, sequence.index,
                      std::span(sequence.tokens).last(static_cast<size_t>(new_tokens)), finish});
}

std::span<const SequenceUpdate> Scheduler::Impl::commit(const StepPlan& plan,
                                                        std::span<const SampledToken> sampled) {
  take_tokens(sampled);
  fold_back(plan, [this](Sequence* sequence) { append(sequence); });
  return updates_;
}

// `append` takes the token of a sequence that sampled.
void Scheduler::Impl::fold_back(const StepPlan& plan, FunctionRef<void(Sequence*)> append) {
  check(outstanding_ && plan.step == plan_.step, "the plan under way is committed, once");
  outstanding_ = false;
  for (Sequence* sequence : planned_) {
    if (!ended(*sequence->unit)) advance(sequence);
    sequence->scheduled = 0;
    sequence->logit_rows = 0;
  }
  for (Sequence* sequence : planned_) {
    Unit* unit = sequence->unit;
    if (ended(*unit)) continue;
    Job* job = unit->job;
    if (!job->prompt_done && sequence->computed >= job->prompt_length) {
      fork_completions(job, *sequence);
    }
    if (job->prompt_only && sequence->computed >= job->prompt_length) {
      end_prompt_only(unit);
    } else if (sequence->samples && unit->is_group()) {
      rearrange(unit);
    } else if (sequence->samples) {
      append(sequence);
    }
  }
  for (Sequence* sequence : planned_) sequence->samples = false;
}

void Scheduler::Impl::take_tokens(std::span<const SampledToken> sampled) {
  for (const SampledToken& chosen : sampled) {
    Sequence* sequence = find(chosen.sequence);
    if (sequence == nullptr || ended(*sequence->unit)) continue;
    check(sequence->samples && !sequence->has_token && !sequence->unit->is_group(),
          "a token is given once to a sequence that samples");
    sequence->has_token = true;
    sequence->token = chosen.token;
  }
}

void Scheduler::Impl::advance(Sequence* sequence) {
  sequence->computed += sequence->scheduled;
  Job* job = sequence->unit->job;
  job->prompt_logits = std::max(job->prompt_logits, sequence->computed);
  blocks_.publish(&sequence->table, sequence->tokens, sequence->computed);
}

// The other completions take over all of the prompt but its last token, which each computes for
// itself to choose its own first token from.
void Scheduler::Impl::fork_completions(Job* job, const Sequence& leader) {
  job->prompt_done = true;
  for (const auto& owned : job->units) {
    Unit* unit = owned.get();
    if (unit->place != Place::kAwaitsPrompt) continue;
    if (job->prompt_only) {
      end_prompt_only(unit);
      continue;
    }
    Sequence& sequence = unit->members.front();
    sequence.computed = job->prompt_length - 1;
    blocks_.fork(leader.table, sequence.computed, &sequence.table);
    unit->place = Place::kWaiting;
    waiting_.push(unit);
  }
}

void Scheduler::Impl::end_prompt_only(Unit* unit) {
  for (const Sequence& sequence : unit->members) report(sequence, 0, FinishReason::kLength);
  end(unit);
}

void Scheduler::Impl::append(Sequence* sequence) {
  check(sequence->has_token, "each live sequence that samples is given a token");
  sequence->has_token = false;
  sequence->tokens.push_back(sequence->token);
  const FinishReason reason = stop_reason(*sequence);
  report(*sequence, 1, reason);
  if (reason != FinishReason::kNone) end_or_pad(sequence->unit);
}

FinishReason Scheduler::Impl::stop_reason(const Sequence& sequence) const {
  const Job& job = *sequence.unit->job;
  const int32_t token = sequence.tokens.back();
  auto holds = [token](const std::vector<int32_t>& ids) {
    return std::ranges::find(ids, token) != ids.end();
  };
  if (sequence.size() >= job.min_length &&
      (holds(job.stop_token_ids) || (!job.ignore_eos && holds(config_.end_ids)))) {
    return FinishReason::kStop;
  }
  return sequence.size() >= job.max_length ? FinishReason::kLength : FinishReason::kNone;
}

}  // namespace pelton::sched
