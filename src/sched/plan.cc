// One step's rows: tokens of running sequences first, then chunks of running prompts, then
// newcomers as long as rows and blocks last.
#include <algorithm>

#include "base/check.h"
#include "sched/scheduler_impl.h"

namespace pelton::sched {

const StepPlan& Scheduler::Impl::plan() {
  check(!outstanding_, "a plan is committed before the next one is made");
  retire();
  updates_.clear();
  planned_.clear();
  plan_.copies.clear();
  plan_.preempted.clear();
  ++plan_.step;
  budget_ = config_.max_num_batched_tokens;
  logit_budget_ = config_.max_logit_rows > 0 ? config_.max_logit_rows : budget_;
  stalled_ = false;
  decode_running();
  extend_running();
  admit();
  place_padding();
  write_plan();
  outstanding_ = true;
  return plan_;
}

// Every active member has exactly its last token left to compute.
bool Scheduler::Impl::decodes(const Unit& unit) const {
  return std::ranges::all_of(unit.active(),
                             [](const Sequence& s) { return s.size() - s.computed == 1; });
}

void Scheduler::Impl::decode_running() {
  // Preemption takes only units behind the one that asks, so the index stays right.
  for (size_t i = 0; i < running_.size(); ++i) {
    if (decodes(*running_[i]) && !awaits_its_end(*running_[i])) decode(running_[i]);
  }
}

void Scheduler::Impl::decode(Unit* unit) {
  if (static_cast<int32_t>(unit->active_count()) > std::min(budget_, logit_budget_)) return;
  if (!ensure_blocks(*unit, [&] { return blocks_needed_to_decode(*unit); })) {
    stalled_ = true;
    return;
  }
  for (Sequence& sequence : unit->active()) place_rows(&sequence, 1);
}

void Scheduler::Impl::extend_running() {
  for (size_t i = 0; i < running_.size() && budget_ > 0; ++i) {
    if (!decodes(*running_[i])) extend(running_[i]);
  }
}

// Gives a unit's prompt, or what a preempted one must compute again, as many rows as the step has
// left. Beams stop before their last token, which they run together.
void Scheduler::Impl::extend(Unit* unit) {
  const bool beams = unit->is_group() && unit->forked;
  if (beams) fork_beams(unit);
  if (beams && decodes(*unit)) return decode(unit);
  for (Sequence& sequence : unit->active()) {
    if (sequence.index > 0 && beams && sequence.computed == 0) continue;  // waits for the first
    const int32_t left = sequence.size() - (beams ? 1 : 0) - sequence.computed;
    const int32_t rows = affordable(sequence, std::min(budget_, left));
    if (rows > 0 && !schedule(&sequence, rows)) return;
  }
}

bool Scheduler::Impl::wants_all_logits(const Sequence& sequence, int32_t rows) const {
  const Job& job = *sequence.unit->job;
  const int32_t wanted = job.wanted_logits();
  return sequence.computed < wanted && sequence.computed + rows > job.prompt_logits &&
         job.prompt_logits < wanted;
}

bool Scheduler::Impl::would_sample(const Sequence& sequence, int32_t rows) const {
  return sequence.computed + rows == sequence.size() && !sequence.unit->job->prompt_only;
}

int32_t Scheduler::Impl::logit_rows(const Sequence& sequence, int32_t rows) const {
  if (wants_all_logits(sequence, rows)) return rows;
  return would_sample(sequence, rows) ? 1 : 0;
}

// As many of `rows` as there are logits left for. A step's single tokens were placed before, and of
// all sequences those leave at least one row's logits, so that somebody always moves.
int32_t Scheduler::Impl::affordable(const Sequence& sequence, int32_t rows) const {
  const int32_t wanted = logit_rows(sequence, rows);
  if (wanted <= logit_budget_) return rows;
  return wants_all_logits(sequence, rows) ? logit_budget_ : rows - 1;
}

bool Scheduler::Impl::schedule(Sequence* sequence, int32_t rows) {
  if (!ensure_blocks(*sequence->unit, [&] { return blocks_needed(*sequence, rows); })) {
    stalled_ = true;
    return false;
  }
  place_rows(sequence, rows);
  return true;
}

int32_t Scheduler::Impl::blocks_needed(const Sequence& sequence, int32_t rows) const {
  const int32_t covering = blocks_.blocks_for(int64_t{sequence.computed} + rows);
  const int32_t copy = blocks_.writable(sequence.table, sequence.computed) ? 0 : 1;
  return std::max(covering - sequence.table.size(), 0) + copy;
}

// One token a member. Of the members that share a block the last one to write keeps it, unless
// somebody outside the unit holds it too.
int32_t Scheduler::Impl::blocks_needed_to_decode(const Unit& unit) const {
  const std::span<const Sequence> members = unit.active();
  int32_t needed = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    needed += blocks_needed(members[i], 1);
    const auto place = static_cast<size_t>(members[i].computed / config_.block_tokens);
    const std::vector<int32_t>& own = members[i].table.blocks;
    if (place >= own.size() || blocks_.writable(members[i].table, members[i].computed)) continue;
    int32_t sharers = 0;
    bool last = true;
    for (size_t j = 0; j < members.size(); ++j) {
      const std::vector<int32_t>& other = members[j].table.blocks;
      if (place >= other.size() || other[place] != own[place]) continue;
      ++sharers;
      last = last && j <= i;
    }
    const int32_t block = own[place];
    const bool kept = sharers == blocks_.pool().references(block) &&
                      (!blocks_.pool().retained(block) || blocks_.tree().children(block) == 0);
    if (last && kept) --needed;
  }
  return needed;
}

// Blocks are available: takes them and puts the rows into the step.
void Scheduler::Impl::place_rows(Sequence* sequence, int32_t rows) {
  const auto copy = blocks_.make_writable(&sequence->table, sequence->computed);
  if (copy.source != kv::kNoBlock) plan_.copies.push_back({copy.source, copy.target});
  blocks_.grow(&sequence->table, int64_t{sequence->computed} + rows);
  sequence->scheduled = rows;
  sequence->samples = would_sample(*sequence, rows);
  sequence->logit_rows = logit_rows(*sequence, rows);
  budget_ -= rows;
  logit_budget_ -= sequence->logit_rows;
  planned_.push_back(sequence);
}

void Scheduler::Impl::write_plan() {
  plan_.sequences.clear();
  plan_.num_tokens = 0;
  for (const Sequence* sequence : planned_) {
    SequenceStep step;
    step.sequence = sequence->id;
    step.first_position = sequence->computed;
    step.tokens = std::span(sequence->tokens)
                      .subspan(static_cast<size_t>(sequence->computed),
                               static_cast<size_t>(sequence->scheduled));
    step.blocks = sequence->table.blocks;
    step.samples = sequence->samples;
    step.all_logits = wants_all_logits(*sequence, sequence->scheduled);
    plan_.sequences.push_back(step);
    plan_.num_tokens += sequence->scheduled;
    if (!ended(*sequence->unit)) stats_.scheduled_tokens += sequence->scheduled;
  }
  if (plan_.num_tokens == 0) return;
  stats_.possible_tokens += config_.max_num_batched_tokens;
}

}  // namespace pelton::sched
