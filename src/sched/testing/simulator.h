// A model stand-in for tests of the scheduler: pages hold, for each slot, what a real model's keys
// and values would depend on, and every step checks that each sequence would read its own history.
// The next token is a hash of that history as read through the plan's block table.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sched/scheduler.h"

namespace pelton::sched::testing {

struct SimResult {
  std::vector<int32_t> tokens;  // prompt first
  FinishReason finish = FinishReason::kNone;
  int ends = 0;            // must be 1 when all is done
  int64_t ended_step = 0;  // steps run before
};

// What a caller of the scheduler does in a step, over fake pages.
class Simulator {
 public:
  explicit Simulator(const SchedulerConfig& config, int32_t vocab = 1000);

  // Empty when the scheduler refused.
  std::vector<SequenceId> add(RequestId id, const Request& request);
  void cancel(RequestId id);
  void finish(SequenceId id);

  // plan, check and run, commit. `between` is called between plan() and commit(). False when the
  // plan was empty.
  bool step(const std::function<void()>& between = {});
  // Until idle; false when that takes more than `limit` steps.
  bool run(int64_t limit);

  Scheduler& scheduler() { return *scheduler_; }
  const SimResult& result(SequenceId id) const { return results_.at(id); }
  const std::map<SequenceId, SimResult>& results() const { return results_; }
  int64_t steps() const { return steps_; }
  int32_t most_rows() const { return most_rows_; }
  // First thing found wrong, "" while all is right.
  const std::string& error() const { return error_; }

  // Token that follows a history, for expectations made without a scheduler. `stream` tells the
  // completions of one request apart.
  int32_t next_token(uint64_t history, uint64_t stream) const;
  static uint64_t absorb(uint64_t history, int32_t token);

  // Given the plan before each step runs.
  std::function<void(const StepPlan&)> observer;

 private:
  struct Slot {
    uint64_t history = 0;  // of all tokens up to and with this one
    int32_t token = -1;
  };
  struct Info {
    RequestId request = 0;
    int32_t index = 0;
    bool beam = false;
    std::vector<int32_t> known;  // its tokens as last seen; they may only grow
  };
  void fail(const std::string& what);
  void copy_blocks(const StepPlan& plan);
  void write_rows(const StepPlan& plan);
  uint64_t read_history(const SequenceStep& step);
  void choose(const StepPlan& plan);
  void choose_beams(RequestId id);
  void note(std::span<const SequenceUpdate> updates);
  void check_histories();

  SchedulerConfig config_;
  int32_t vocab_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<Slot> pages_;  // num_blocks * block_tokens
  std::map<SequenceId, SimResult> results_;
  std::map<SequenceId, Info> live_;
  std::map<RequestId, std::vector<SequenceId>> groups_;
  std::map<RequestId, std::vector<std::pair<SequenceId, uint64_t>>> beam_reads_;
  std::vector<SampledToken> sampled_;
  int64_t steps_ = 0;
  int32_t most_rows_ = 0;
  std::string error_;
};

}  // namespace pelton::sched::testing
