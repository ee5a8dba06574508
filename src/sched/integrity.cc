// Figures, and the proof that all parts of the state agree.
#include <fmt/format.h>

#include <algorithm>

#include "sched/scheduler_impl.h"

namespace pelton::sched {

SchedulerStats Scheduler::Impl::stats() const {
  SchedulerStats stats = stats_;
  stats.running = slots_;
  stats.waiting = live_ - slots_;
  stats.free_blocks = blocks_.pool().available();
  stats.cached_blocks = blocks_.pool().cached();
  stats.total_blocks = config_.num_blocks;
  return stats;
}

BlockUsage Scheduler::Impl::block_usage() const {
  std::vector<int32_t> used(static_cast<size_t>(config_.num_blocks), -1);
  for (const auto& [id, sequence] : sequences_) {
    const int32_t length = sequence->computed + sequence->scheduled;
    for (int32_t i = 0; i < sequence->table.size(); ++i) {
      const int32_t here = std::clamp(length - i * config_.block_tokens, 0, config_.block_tokens);
      int32_t& most = used[static_cast<size_t>(sequence->table.blocks[static_cast<size_t>(i)])];
      most = std::max(most, here);
    }
  }
  BlockUsage usage;
  for (int32_t tokens : used) {
    if (tokens < 0) continue;
    usage.held_tokens += config_.block_tokens;
    usage.used_tokens += tokens;
  }
  return usage;
}

Status Scheduler::Impl::check_unit(const Unit& unit) const {
  for (const Sequence& sequence : unit.members) {
    const int32_t rows = sequence.computed + sequence.scheduled;
    const bool planned = std::ranges::find(planned_, &sequence) != planned_.end() && outstanding_;
    if (!ended(unit) && (sequence.scheduled > 0) != planned) {
      return internal_error(fmt::format("sequence {}: {} rows scheduled, planned {}", sequence.id,
                                        sequence.scheduled, planned));
    }
    const bool padding = unit.place == Place::kPadding;
    const int32_t least = unit.place == Place::kEnded ? 0 : blocks_.blocks_for(rows);
    const int32_t most = padding ? blocks_.blocks_for(sequence.size()) : least;
    if (rows > sequence.size() || sequence.table.size() < least || sequence.table.size() > most) {
      return internal_error(fmt::format("sequence {}: {} of {} tokens in {} blocks", sequence.id,
                                        rows, sequence.size(), sequence.table.size()));
    }
    if (!ended(unit) &&
        (sequence.size() < unit.job->prompt_length ||
         sequence.size() > std::max(unit.job->max_length, unit.job->prompt_length))) {
      return internal_error(fmt::format("sequence {}: {} tokens", sequence.id, sequence.size()));
    }
    if (find(sequence.id) != &sequence) {
      return internal_error(fmt::format("sequence {} is not found by its id", sequence.id));
    }
  }
  return {};
}

Status Scheduler::Impl::check_integrity() const {
  std::vector<const kv::BlockTable*> tables;
  int32_t live = 0;
  int32_t slots = 0;
  size_t sequences = 0;
  size_t waiting = 0;
  int32_t queued = 0;
  for (const auto& [id, job] : jobs_) {
    int32_t live_units = 0;
    for (const auto& owned : job->units) {
      Unit& unit = *owned;
      const auto members = static_cast<int32_t>(unit.members.size());
      if (Status s = check_unit(unit); !s.ok()) return s;
      for (const Sequence& sequence : unit.members) tables.push_back(&sequence.table);
      for (const BeamScratch& scratch : unit.scratch) tables.push_back(&scratch.table);
      sequences += unit.members.size();
      live_units += ended(unit) ? 0 : 1;
      live += ended(unit) ? 0 : members;
      slots += unit.place == Place::kRunning ? members : 0;
      waiting += unit.place == Place::kWaiting ? 1 : 0;
      const bool runs = std::ranges::find(running_, &unit) != running_.end();
      const bool ends = std::ranges::find(ended_, &unit) != ended_.end();
      const bool pads = std::ranges::find(padding_, &unit) != padding_.end();
      if (runs != (unit.place == Place::kRunning) || ends != (unit.place == Place::kEnded) ||
          pads != (unit.place == Place::kPadding) ||
          waiting_.contains(&unit) != (unit.place == Place::kWaiting)) {
        return internal_error(fmt::format("request {}: a completion is misplaced", id));
      }
    }
    queued += !job->admitted && live_units > 0 ? 1 : 0;
    if (live_units != job->live_units) {
      return internal_error(fmt::format("request {}: {} live completions, {} counted", id,
                                        job->live_units, live_units));
    }
  }
  if (live != live_ || slots != slots_ || sequences != sequences_.size() ||
      queued != queued_jobs_ || waiting != waiting_.units().size() ||
      slots > config_.max_num_seqs) {
    return internal_error("counts of live, running or queued sequences disagree");
  }
  if (!std::ranges::is_sorted(running_, ByKey{})) return internal_error("running order is broken");
  return blocks_.check_integrity(tables);
}

}  // namespace pelton::sched
