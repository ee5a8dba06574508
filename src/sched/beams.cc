// Beam groups: their members run their tokens in the same steps, share blocks and copy on write.
#include <algorithm>

#include "base/check.h"
#include "sched/scheduler_impl.h"

namespace pelton::sched {

void Scheduler::Impl::commit_beams(RequestId id, std::span<const SequenceId> parents,
                                   std::span<const int32_t> tokens) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || found->second->live_units == 0) return;
  Unit* unit = found->second->units.front().get();
  check(outstanding_ && unit->is_group() && unit->parents.empty(),
        "a beam group is extended once a step");
  check(parents.size() == unit->members.size() && tokens.size() == parents.size(),
        "each beam has a parent and a token");
  for (size_t i = 0; i < parents.size(); ++i) {
    const auto parent = std::ranges::find(unit->members, parents[i], &Sequence::id);
    check(parent != unit->members.end() && parent->samples, "a beam's parent was sampled from");
    unit->parents.push_back(static_cast<int32_t>(parent - unit->members.begin()));
    unit->members[i].token = tokens[i];
  }
}

void Scheduler::Impl::rearrange(Unit* unit) {
  check(!unit->parents.empty() || !unit->members.front().samples,
        "commit_beams comes before commit");
  if (unit->parents.empty()) return;  // done with the group's first member
  std::vector<Sequence>& members = unit->members;
  for (size_t i = 0; i < members.size(); ++i) {
    const auto parent = static_cast<size_t>(unit->parents[i]);
    if (parent == i) continue;
    unit->scratch[i].tokens = members[parent].tokens;
    blocks_.fork(members[parent].table, members[parent].computed, &unit->scratch[i].table);
  }
  const int32_t computed = members.front().computed;
  for (size_t i = 0; i < members.size(); ++i) {
    if (static_cast<size_t>(unit->parents[i]) == i) continue;
    blocks_.clear(&members[i].table);
    std::swap(members[i].table, unit->scratch[i].table);
    std::swap(members[i].tokens, unit->scratch[i].tokens);
    members[i].computed = computed;
  }
  unit->parents.clear();
  unit->forked = true;
  FinishReason reason = FinishReason::kNone;
  if (members.front().size() + 1 >= unit->job->max_length) reason = FinishReason::kLength;
  for (Sequence& member : members) {
    member.samples = false;
    member.tokens.push_back(member.token);
    report(member, 1, reason);
  }
  if (reason != FinishReason::kNone) end(unit);
}

// Leading tokens that a beam has in common with the group's first, short of the last one.
int32_t Scheduler::Impl::common_prefix(const Unit& unit, const Sequence& beam) {
  const std::vector<int32_t>& first = unit.members.front().tokens;
  const auto end = std::ranges::mismatch(beam.tokens, first).in1;
  return std::min(static_cast<int32_t>(end - beam.tokens.begin()), beam.size() - 1);
}

// After a preemption the group's first beam computes what it shares with the others, which then
// take it over.
void Scheduler::Impl::fork_beams(Unit* unit) {
  const Sequence& first = unit->members.front();
  for (Sequence& beam : std::span(unit->members).subspan(1)) {
    if (beam.computed > 0) continue;
    const int32_t shared = common_prefix(*unit, beam);
    if (first.computed < shared) continue;
    blocks_.fork(first.table, shared, &beam.table);
    beam.computed = shared;
    stats_.recomputed_tokens += std::max(beam.lost - shared, 0);
    beam.lost = 0;
  }
}

}  // namespace pelton::sched
