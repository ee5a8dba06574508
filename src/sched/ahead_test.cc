// Steps planned before the tokens of the last one are known: answers, ends and blocks are those of
// the simple order.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "sched/testing/requests.h"

namespace pelton::sched {
namespace {

using testing::expected;
using testing::make_request;
using testing::Simulator;
using testing::small_config;

// A device that runs steps in the order they are queued and knows every sampled token at once; the
// host learns them a step late.
class AheadRun {
 public:
  explicit AheadRun(const SchedulerConfig& config)
      : config_(config),
        scheduler_(config),
        pages_(static_cast<size_t>(config.num_blocks * config.block_tokens)) {}

  std::vector<SequenceId> add(RequestId id, const Request& request) {
    auto added = scheduler_.add(id, request);
    EXPECT_TRUE(added.ok());
    for (const SequenceId sequence : *added) tokens_[sequence] = request.prompt_ids;
    int32_t index = 0;
    for (const SequenceId sequence : *added) index_[sequence] = index++;
    return *added;
  }

  // One step of the pipeline; false when nothing is left.
  bool step() {
    std::vector<SampledToken> arriving;
    if (queued_) {
      arriving = *queued_;
      note(scheduler_.commit_ahead(*plan_));
      queued_.reset();
    }
    plan_ = &scheduler_.plan();
    const bool worked = !plan_->empty();
    if (worked) {
      queued_ = launch(*plan_);
    } else {
      scheduler_.commit(*plan_, {});
    }
    if (between) between();
    note(scheduler_.resolve(arriving));
    EXPECT_TRUE(scheduler_.check_integrity().ok()) << scheduler_.check_integrity().to_string();
    return worked || !arriving.empty();
  }
  void run() {
    for (int steps = 0; step(); ++steps) ASSERT_LT(steps, 10000);
  }

  Scheduler& scheduler() { return scheduler_; }
  const std::vector<int32_t>& told(SequenceId id) { return told_[id]; }
  FinishReason finish(SequenceId id) { return finish_[id]; }
  int64_t preempted = 0;
  std::function<void()> between;

 private:
  std::vector<SampledToken> launch(const StepPlan& plan) {
    EXPECT_TRUE(plan.copies.empty() || config_.enable_prefix_caching);
    preempted += std::ssize(plan.preempted);
    const auto rows = static_cast<size_t>(config_.block_tokens);
    for (const BlockCopy& copy : plan.copies) {
      for (size_t i = 0; i < rows; ++i)
        pages_[static_cast<size_t>(copy.target) * rows + i] =
            pages_[static_cast<size_t>(copy.source) * rows + i];
    }
    std::vector<SampledToken> sampled;
    for (const SequenceStep& step : plan.sequences) {
      std::vector<int32_t>& own = tokens_.at(step.sequence);
      const auto reach = static_cast<size_t>(step.first_position) + step.tokens.size();
      EXPECT_LE(reach, own.size());
      EXPECT_LE(reach, step.blocks.size() * rows);
      uint64_t history = 0;
      for (size_t position = 0; position < reach; ++position) {
        history = Simulator::absorb(history, own[position]);
        uint64_t& slot =
            pages_[static_cast<size_t>(step.blocks[position / rows]) * rows + position % rows];
        if (position < static_cast<size_t>(step.first_position)) {
          EXPECT_EQ(slot, history) << "sequence " << step.sequence << ", position " << position;
          continue;
        }
        slot = history;
        const int32_t named = step.tokens[position - static_cast<size_t>(step.first_position)];
        if (named == kPendingToken) {
          EXPECT_EQ(position + 1, reach);
        } else {
          EXPECT_EQ(named, own[position]);
        }
      }
      if (!step.samples) continue;
      const int32_t token = model_.next_token(history, stream(step.sequence));
      if (own.size() == reach) own.push_back(token);
      sampled.push_back({step.sequence, token});
    }
    return sampled;
  }
  uint64_t stream(SequenceId id) const { return static_cast<uint64_t>(index_.at(id)); }
  void note(std::span<const SequenceUpdate> updates) {
    for (const SequenceUpdate& update : updates) {
      EXPECT_EQ(finish_[update.sequence], FinishReason::kNone);
      std::vector<int32_t>& told = told_[update.sequence];
      told.insert(told.end(), update.new_tokens.begin(), update.new_tokens.end());
      finish_[update.sequence] = update.finish;
    }
  }

  SchedulerConfig config_;
  Scheduler scheduler_;
  Simulator model_{small_config()};  // for its tokens
  std::vector<uint64_t> pages_;
  std::map<SequenceId, std::vector<int32_t>> tokens_;  // as the device knows them
  std::map<SequenceId, int32_t> index_;
  std::map<SequenceId, std::vector<int32_t>> told_;
  std::map<SequenceId, FinishReason> finish_;
  std::optional<std::vector<SampledToken>> queued_;
  const StepPlan* plan_ = nullptr;
};

std::vector<int32_t> generated(const Request& request, const std::vector<int32_t>& whole) {
  return {whole.begin() + std::ssize(request.prompt_ids), whole.end()};
}

TEST(SchedulerAhead, LengthsAreMetExactly) {
  AheadRun run(small_config());
  const Simulator model(small_config());
  std::vector<Request> requests;
  std::vector<SequenceId> ids;
  for (int32_t i = 0; i < 12; ++i) {
    requests.push_back(make_request(3 + 7 * i, 1 + 3 * i, static_cast<uint64_t>(i)));
    ids.push_back(run.add(static_cast<RequestId>(i + 1), requests.back()).front());
  }
  run.run();
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto length = static_cast<int32_t>(3 + 7 * i + 1 + 3 * i);
    EXPECT_EQ(run.told(ids[i]), generated(requests[i], expected(model, requests[i], length)));
    EXPECT_EQ(run.finish(ids[i]), FinishReason::kLength);
  }
  EXPECT_TRUE(run.scheduler().idle());
  EXPECT_EQ(run.scheduler().stats().free_blocks, 128);
}

TEST(SchedulerAhead, AStopTokenDropsTheRowThatWasQueued) {
  SchedulerConfig config = small_config();
  AheadRun run(config);
  const Simulator model(config);
  for (int32_t i = 0; i < 20; ++i) {
    Request request = make_request(5 + i, 40, static_cast<uint64_t>(100 + i));
    const auto whole = expected(model, request, 45 + i);
    request.sampling.stop_token_ids = {whole[static_cast<size_t>(5 + i + i)]};
    const auto id = run.add(static_cast<RequestId>(i + 1), request).front();
    run.run();
    EXPECT_EQ(run.told(id), generated(request, expected(model, request, 45 + i, 0,
                                                        request.sampling.stop_token_ids)));
    EXPECT_EQ(run.finish(id), FinishReason::kStop);
  }
  EXPECT_EQ(run.scheduler().stats().free_blocks, 128);
}

TEST(SchedulerAhead, PreemptionAndSharedPrefixes) {
  SchedulerConfig config = small_config();
  config.num_blocks = 24;
  AheadRun run(config);
  const Simulator model(config);
  std::vector<Request> requests;
  std::vector<SequenceId> ids;
  for (int32_t i = 0; i < 10; ++i) {
    requests.push_back(make_request(30, 60 + i, static_cast<uint64_t>(i / 3)));
    ids.push_back(run.add(static_cast<RequestId>(i + 1), requests.back()).front());
  }
  run.run();
  EXPECT_GT(run.preempted, 0);
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto length = static_cast<int32_t>(90 + i);
    EXPECT_EQ(run.told(ids[i]), generated(requests[i], expected(model, requests[i], length)));
  }
}

TEST(SchedulerAhead, CompletionsAndCancellation) {
  AheadRun run(small_config());
  const Simulator model(small_config());
  Request several = make_request(21, 17);
  several.sampling.n = 4;
  const auto ids = run.add(1, several);
  const auto other = run.add(2, make_request(9, 100, 4)).front();
  int steps = 0;
  run.between = [&] {
    if (++steps == 12) run.scheduler().cancel(2);
  };
  run.run();
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(run.told(ids[i]), generated(several, expected(model, several, 38, i)));
  }
  EXPECT_LT(run.told(other).size(), 13u);
  EXPECT_EQ(run.scheduler().stats().free_blocks, 128);
}

TEST(SchedulerAhead, APromptAloneEndsWithoutAToken) {
  AheadRun run(small_config());
  const auto id = run.add(1, make_request(100, 0)).front();
  run.run();
  EXPECT_TRUE(run.told(id).empty());
  EXPECT_EQ(run.finish(id), FinishReason::kLength);
}

}  // namespace
}  // namespace pelton::sched
