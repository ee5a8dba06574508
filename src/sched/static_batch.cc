// Static batching, kept for comparison: requests that fill the slots form a batch, and the next one
// forms when it has ended as a whole. As in engines that compute padded batches, a sequence that is
// done goes on costing a row of every step until the longest is done. Such a padding row computes
// the sequence's last token once more, writes what is of no use to anyone, and asks for no logits;
// it is the least that a padded batch could cost.
#include <algorithm>

#include "sched/scheduler_impl.h"

namespace pelton::sched {

// When the last batch is done, the requests that fill the slots form the next.
void Scheduler::Impl::open_batch() {
  if (batch_live_ > 0 || waiting_.empty()) return;
  ++batch_;
  int32_t slots = 0;
  for (Unit* unit : waiting_.units()) {
    Job* job = unit->job;
    if (job->batch == batch_) continue;
    int32_t wanted = 0;
    for (const auto& owned : job->units) {
      if (!ended(*owned)) wanted += static_cast<int32_t>(owned->members.size());
    }
    if (slots > 0 && slots + wanted > config_.max_num_seqs) return;
    slots += wanted;
    job->batch = batch_;
    batch_live_ += job->live_units;
  }
}

// A running sequence has its last token: it ends, or becomes padding while others of its batch run.
void Scheduler::Impl::end_or_pad(Unit* unit) {
  const bool pads = config_.static_batching && batch_live_ > 1 && unit->place == Place::kRunning;
  if (!pads) return end(unit);
  leave(unit, Place::kPadding);
  padding_.push_back(unit);
}

void Scheduler::Impl::end_padding(Unit* unit) {
  std::erase(padding_, unit);
  retire_later(unit);
}

void Scheduler::Impl::end_all_padding() {
  while (!padding_.empty()) end_padding(padding_.back());
}

// One row each, beside rows that somebody wants and of what blocks these leave.
void Scheduler::Impl::place_padding() {
  if (planned_.empty()) return;
  for (size_t i = padding_.size(); i-- > 0;) {
    Sequence& sequence = padding_[i]->members.front();
    if (budget_ == 0 || planned_.size() == static_cast<size_t>(config_.max_num_seqs)) return;
    if (blocks_.pool().available() < blocks_needed(sequence, 1)) {
      end_padding(padding_[i]);
      continue;
    }
    place_rows(&sequence, 1);
    sequence.samples = false;
    logit_budget_ += sequence.logit_rows;
    sequence.logit_rows = 0;
    ++stats_.padding_tokens;
  }
}

}  // namespace pelton::sched
