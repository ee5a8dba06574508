#include "sched/testing/simulator.h"

#include <fmt/format.h>

#include <algorithm>

namespace pelton::sched::testing {
namespace {

uint64_t mix(uint64_t x) {
  x ^= x >> 31;
  x *= 0x7FB5D329728EA185u;
  x ^= x >> 27;
  x *= 0x81DADEF4BC2DD44Du;
  return x ^ (x >> 33);
}

}  // namespace

uint64_t Simulator::absorb(uint64_t history, int32_t token) {
  return mix(history * 31 + static_cast<uint64_t>(token) + 1);
}

int32_t Simulator::next_token(uint64_t history, uint64_t stream) const {
  return static_cast<int32_t>(mix(history + stream * 0x9E3779B97F4A7C15u) %
                              static_cast<uint64_t>(vocab_));
}

Simulator::Simulator(const SchedulerConfig& config, int32_t vocab)
    : config_(config),
      vocab_(vocab),
      scheduler_(std::make_unique<Scheduler>(config)),
      pages_(static_cast<size_t>(config.num_blocks) * static_cast<size_t>(config.block_tokens)) {}

void Simulator::fail(const std::string& what) {
  if (error_.empty()) error_ = fmt::format("step {}: {}", steps_, what);
}

std::vector<SequenceId> Simulator::add(RequestId id, const Request& request) {
  auto added = scheduler_->add(id, request);
  if (!added.ok()) return {};
  int32_t index = 0;
  for (SequenceId sequence : *added) {
    results_[sequence] = {};
    live_[sequence] = {id, index++, request.sampling.num_beams > 1, request.prompt_ids};
  }
  if (request.sampling.num_beams > 1) groups_[id] = *added;
  return *added;
}

void Simulator::cancel(RequestId id) {
  const auto updates = scheduler_->cancel(id);
  note(updates);
}

void Simulator::finish(SequenceId id) {
  if (const auto found = live_.find(id); found == live_.end() || found->second.beam) return;
  if (const auto update = scheduler_->finish(id, FinishReason::kStop)) note({&*update, 1});
}

void Simulator::copy_blocks(const StepPlan& plan) {
  const auto rows = static_cast<size_t>(config_.block_tokens);
  for (const BlockCopy& copy : plan.copies) {
    if (copy.source < 0 || copy.target < 0 || copy.source >= config_.num_blocks ||
        copy.target >= config_.num_blocks) {
      return fail("a copy names a block that does not exist");
    }
    std::copy_n(pages_.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(copy.source) * rows),
                rows,
                pages_.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(copy.target) * rows));
  }
}

// Rows depend on what was there before the step only: all are written, then all read.
void Simulator::write_rows(const StepPlan& plan) {
  std::map<size_t, SequenceId> writers;
  int32_t rows = 0;
  for (const SequenceStep& step : plan.sequences) {
    const auto count = static_cast<int32_t>(step.tokens.size());
    rows += count;
    if (count == 0) fail("a sequence without rows is planned");
    const int32_t reach = step.first_position + count;
    if (static_cast<int32_t>(step.blocks.size()) * config_.block_tokens < reach) {
      return fail("a block table is too short for its rows");
    }
    const auto own = scheduler_->tokens(step.sequence);
    if (static_cast<int32_t>(own.size()) < reach ||
        !std::ranges::equal(step.tokens, own.subspan(static_cast<size_t>(step.first_position),
                                                     step.tokens.size()))) {
      fail("a plan's tokens are not the sequence's");
    }
    for (int32_t i = 0; i < count; ++i) {
      const int32_t position = step.first_position + i;
      const auto block = step.blocks[static_cast<size_t>(position / config_.block_tokens)];
      if (block < 0 || block >= config_.num_blocks) return fail("a table names no block");
      const size_t slot = static_cast<size_t>(block) * static_cast<size_t>(config_.block_tokens) +
                          static_cast<size_t>(position % config_.block_tokens);
      if (!writers.emplace(slot, step.sequence).second) fail("a slot is written twice in a step");
      pages_[slot] = {0, step.tokens[static_cast<size_t>(i)]};
    }
  }
  if (rows != plan.num_tokens || rows > config_.max_num_batched_tokens) {
    fail(fmt::format("{} rows planned, {} counted", rows, plan.num_tokens));
  }
  int32_t logits = 0;
  for (const SequenceStep& step : plan.sequences) {
    if (step.all_logits) {
      logits += static_cast<int32_t>(step.tokens.size());
    } else if (step.samples) {
      ++logits;
    }
  }
  if (config_.max_logit_rows > 0 && logits > config_.max_logit_rows) {
    fail(fmt::format("logits of {} rows planned, {} allowed", logits, config_.max_logit_rows));
  }
  if (static_cast<int32_t>(plan.sequences.size()) > config_.max_num_seqs)
    fail("too many sequences");
  most_rows_ = std::max(most_rows_, rows);
}

// Reads everything the last row attends to and stores the history with each row, as attention over
// earlier layers would.
uint64_t Simulator::read_history(const SequenceStep& step) {
  const auto own = scheduler_->tokens(step.sequence);
  const int32_t reach = step.first_position + static_cast<int32_t>(step.tokens.size());
  uint64_t history = 0;
  for (int32_t position = 0; position < reach; ++position) {
    const auto block = step.blocks[static_cast<size_t>(position / config_.block_tokens)];
    Slot& slot = pages_[static_cast<size_t>(block) * static_cast<size_t>(config_.block_tokens) +
                        static_cast<size_t>(position % config_.block_tokens)];
    history = absorb(history, slot.token);
    if (slot.token != own[static_cast<size_t>(position)]) {
      fail(fmt::format("sequence {} reads token {} at position {}, its own is {}", step.sequence,
                       slot.token, position, own[static_cast<size_t>(position)]));
    }
    if (position >= step.first_position) {
      slot.history = history;
    } else if (slot.history != history) {
      fail(fmt::format("sequence {} reads another's keys at position {}", step.sequence, position));
    }
  }
  return history;
}

void Simulator::choose(const StepPlan& plan) {
  sampled_.clear();
  beam_reads_.clear();
  for (const SequenceStep& step : plan.sequences) {
    const uint64_t history = read_history(step);
    if (!step.samples) continue;
    const Info& info = live_.at(step.sequence);
    if (info.beam) {
      beam_reads_[info.request].emplace_back(step.sequence, history);
    } else {
      sampled_.push_back({step.sequence, next_token(history, static_cast<uint64_t>(info.index))});
    }
  }
}

// Each group keeps the beams and tokens that a hash of all its histories picks: parents repeat, are
// dropped and change places.
void Simulator::choose_beams(RequestId id) {
  const auto& reads = beam_reads_.at(id);
  const std::vector<SequenceId>& group = groups_.at(id);
  if (reads.size() != 1 && reads.size() != group.size()) fail("a beam group runs in parts");
  uint64_t all = 0;
  for (const auto& [sequence, history] : reads) all = mix(all ^ history);
  std::vector<SequenceId> parents;
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < group.size(); ++i) {
    const auto& [sequence, history] = reads[mix(all + i) % reads.size()];
    parents.push_back(sequence);
    tokens.push_back(next_token(history, i));
    std::vector<int32_t> known(scheduler_->tokens(sequence).begin(),
                               scheduler_->tokens(sequence).end());
    live_.at(group[i]).known = std::move(known);
  }
  scheduler_->commit_beams(id, parents, tokens);
}

void Simulator::note(std::span<const SequenceUpdate> updates) {
  for (const SequenceUpdate& update : updates) {
    const auto found = live_.find(update.sequence);
    if (found == live_.end()) {
      fail("an update names a sequence that is not live");
      continue;
    }
    Info& info = found->second;
    if (info.request != update.request || info.index != update.index) fail("update misnamed");
    info.known.insert(info.known.end(), update.new_tokens.begin(), update.new_tokens.end());
    if (update.finish == FinishReason::kNone) continue;
    SimResult& result = results_.at(update.sequence);
    result = {info.known, update.finish, result.ends + 1, steps_};
    live_.erase(found);
  }
}

void Simulator::check_histories() {
  for (const auto& [sequence, info] : live_) {
    if (!std::ranges::equal(scheduler_->tokens(sequence), info.known)) {
      fail(fmt::format("sequence {} has other tokens than were given to it", sequence));
    }
  }
}

bool Simulator::step(const std::function<void()>& between) {
  const StepPlan& plan = scheduler_->plan();
  const bool some = !plan.empty();
  if (Status s = scheduler_->check_integrity(); !s.ok()) fail("planned: " + s.message());
  if (observer) observer(plan);
  copy_blocks(plan);
  write_rows(plan);
  if (error_.empty()) choose(plan);
  if (between) between();
  for (const auto& [id, reads] : beam_reads_) {
    if (live_.contains(reads.front().first) && error_.empty()) choose_beams(id);
  }
  if (!error_.empty()) return false;
  note(scheduler_->commit(plan, sampled_));
  ++steps_;
  if (Status s = scheduler_->check_integrity(); !s.ok()) fail("committed: " + s.message());
  check_histories();
  return some;
}

bool Simulator::run(int64_t limit) {
  for (int64_t i = 0; i < limit && error_.empty(); ++i) {
    if (scheduler_->idle()) return true;
    step();
  }
  return scheduler_->idle() && error_.empty();
}

}  // namespace pelton::sched::testing
