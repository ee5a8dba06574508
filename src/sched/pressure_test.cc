// Too few blocks, too many requests, callers that go away.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "sched/testing/requests.h"

namespace pelton::sched {
namespace {

using testing::expected;
using testing::make_request;
using testing::Simulator;
using testing::small_config;

TEST(SchedulerPressure, TinyPoolsGiveTheTokensOfALargeOne) {
  for (int32_t blocks : {16, 24, 64}) {
    for (bool caching : {true, false}) {
      SchedulerConfig config = small_config();
      config.num_blocks = blocks;
      config.enable_prefix_caching = caching;
      config.max_model_len = 16 * 8;
      Simulator sim(config);
      std::vector<Request> requests;
      std::vector<SequenceId> ids;
      for (uint64_t i = 0; i < 12; ++i) {
        requests.push_back(make_request(5 + static_cast<int32_t>(i * 7 % 60), 60, i / 2));
        ids.push_back(sim.add(i, requests.back()).at(0));
      }
      ASSERT_TRUE(sim.run(1200)) << sim.error();
      for (size_t i = 0; i < ids.size(); ++i) {
        const auto length = static_cast<int32_t>(requests[i].prompt_ids.size()) + 60;
        EXPECT_EQ(sim.result(ids[i]).tokens, expected(sim, requests[i], length)) << blocks << i;
        EXPECT_EQ(sim.result(ids[i]).ends, 1);
      }
      if (blocks <= 24) {
        EXPECT_GT(sim.scheduler().stats().preemptions, 0);
      }
      EXPECT_EQ(sim.scheduler().stats().free_blocks, blocks);
    }
  }
}

TEST(SchedulerPressure, ManyRequestsInAPoolForTwo) {
  SchedulerConfig config = small_config();
  config.num_blocks = 56;  // two of 220 tokens
  Simulator sim(config);
  std::vector<Request> requests;
  std::vector<SequenceId> ids;
  for (uint64_t i = 0; i < 6; ++i) {
    requests.push_back(make_request(20, 200, i));
    ids.push_back(sim.add(i, requests.back()).at(0));
  }
  ASSERT_TRUE(sim.run(1000)) << sim.error();
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(sim.result(ids[i]).tokens, expected(sim, requests[i], 220));
  }
  EXPECT_GT(sim.scheduler().stats().preemptions, 0);
  // Each preemption costs at most the tokens of its victim.
  EXPECT_LE(sim.scheduler().stats().recomputed_tokens, 220 * sim.scheduler().stats().preemptions);
}

// Long requests beside an endless stream of short ones.
TEST(SchedulerPressure, NobodyStarves) {
  SchedulerConfig config = small_config();
  config.num_blocks = 48;
  config.max_num_seqs = 6;
  config.max_waiting = 8;
  Simulator sim(config);
  std::set<SequenceId> seen;
  std::set<SequenceId> set_back;
  sim.observer = [&](const StepPlan& plan) {
    set_back.insert(plan.preempted.begin(), plan.preempted.end());
    for (const SequenceStep& step : plan.sequences) {
      set_back.erase(step.sequence);
      const bool newcomer = seen.insert(step.sequence).second;
      for (SequenceId waiting : set_back) {
        EXPECT_FALSE(newcomer && step.sequence > waiting) << "a preempted one was overtaken";
      }
    }
  };
  RequestId next = 0;
  std::map<SequenceId, int64_t> arrival;
  bool long_is_due = false;
  for (int64_t i = 0; i < 3000; ++i) {
    long_is_due = long_is_due || i % 60 == 0;
    const auto seed = static_cast<uint64_t>(i);
    const auto ids =
        sim.add(next++, long_is_due ? make_request(60, 180, seed) : make_request(9, 12, seed));
    if (!ids.empty()) {
      arrival[ids[0]] = sim.steps();
      long_is_due = false;
    }
    sim.step();
    ASSERT_EQ(sim.error(), "");
  }
  ASSERT_TRUE(sim.run(2000)) << sim.error();
  EXPECT_GT(sim.scheduler().stats().preemptions, 10);
  int64_t longest = 0;
  for (const auto& [id, when] : arrival) {
    EXPECT_EQ(sim.result(id).ends, 1);
    longest = std::max(longest, sim.result(id).ended_step - when);
  }
  // Before it at most the 8 that wait and the 6 that run, each at most 183 steps alone.
  EXPECT_LE(longest, 15 * 183);
}

TEST(SchedulerPressure, SlotsAndBlocksComeBackAfterCancels) {
  SchedulerConfig config = small_config();
  config.num_blocks = 64;
  Simulator sim(config);
  Random random(5);
  RequestId next = 0;
  for (int i = 0; i < 1000; ++i) {
    Request request =
        make_request(1 + static_cast<int32_t>(random.below(100)), 30, random.below(9));
    if (i % 7 == 0) request.sampling.n = 3;
    if (i % 11 == 0) request.sampling.num_beams = 2;
    const RequestId id = next++;
    sim.add(id, request);
    const uint64_t when = random.below(4);
    if (when == 0) sim.cancel(id);
    sim.step([&] {
      if (when == 1) sim.cancel(id);
    });
    if (when == 2) sim.cancel(id);
    if (next > 5) sim.cancel(next - 5);
    ASSERT_EQ(sim.error(), "") << i;
  }
  for (RequestId id = 0; id < next; ++id) sim.cancel(id);
  EXPECT_TRUE(sim.scheduler().idle());
  EXPECT_EQ(sim.scheduler().stats().free_blocks, 64);
  for (int i = 0; i < 8; ++i) sim.add(next++, make_request(8, 4, static_cast<uint64_t>(i)));
  size_t together = 0;
  sim.observer = [&](const StepPlan& plan) {
    together = std::max(together, plan.sequences.size());
  };
  ASSERT_TRUE(sim.run(10)) << sim.error();
  EXPECT_EQ(together, 8u);
}

// A turn that breaks off must not harm the next one, which shares its prefix.
TEST(SchedulerPressure, ABrokenTurnLeavesTheNextOneRight) {
  Simulator sim(small_config());
  const Request turn = make_request(90, 30);
  Request next_turn = turn;
  for (int32_t i = 0; i < 20; ++i) next_turn.prompt_ids.push_back(i);
  for (RequestId i = 0; i < 100; ++i) {
    sim.add(2 * i, turn);
    for (RequestId steps = 0; steps < i % 7; ++steps) sim.step();
    sim.step([&] { sim.cancel(2 * i); });
    const auto ids = sim.add(2 * i + 1, next_turn);
    ASSERT_TRUE(sim.run(100)) << sim.error();
    EXPECT_EQ(sim.result(ids[0]).tokens, expected(sim, next_turn, 140));
    EXPECT_EQ(sim.scheduler().stats().free_blocks, 128);
  }
}

// Lengths as in conversations that people shared: log-normal, 161 tokens asked and 338 answered in
// the mean, at most 2,048 together.
struct Mix {
  Random random{11};
  int32_t draw(double mean, int32_t most) {
    const double sigma = 1.1;
    const double x =
        std::exp(std::log(mean) - sigma * sigma / 2 + sigma * static_cast<double>(random.normal()));
    return std::clamp(static_cast<int32_t>(x), 4, most);
  }
  Request next(uint64_t seed) {
    const int32_t prompt = draw(161, 1024);
    Request request = make_request(prompt, draw(338, 2048 - prompt), seed);
    request.sampling.ignore_eos = true;
    return request;
  }
};

TEST(SchedulerPressure, PagingWastesLittleAndHoldsManyUsers) {
  for (int32_t block_tokens : {16, 32}) {
    SchedulerConfig config;
    config.max_num_seqs = 256;
    config.max_num_batched_tokens = 2048;
    config.max_model_len = 2048;
    config.block_tokens = block_tokens;
    config.num_blocks = 16 * 2048 / block_tokens;  // 16 users at the longest length
    config.max_waiting = 64;
    Scheduler scheduler(config);
    Mix mix;
    RequestId next = 0;
    int64_t held = 0;
    int64_t used = 0;
    int64_t users = 0;
    int64_t steps = 0;
    std::vector<SampledToken> sampled;
    for (int i = 0; i < 3000; ++i) {
      while (scheduler.stats().waiting < 32) {
        ASSERT_TRUE(scheduler.add(next, mix.next(next)).ok());
        ++next;
      }
      const StepPlan& plan = scheduler.plan();
      sampled.clear();
      for (const SequenceStep& step : plan.sequences) {
        if (step.samples) sampled.push_back({step.sequence, 1});
      }
      scheduler.commit(plan, sampled);
      if (i < 500 || i % 20 != 0) continue;
      const BlockUsage usage = scheduler.block_usage();
      held += usage.held_tokens;
      used += usage.used_tokens;
      users += scheduler.stats().running;
      ++steps;
    }
    ASSERT_TRUE(scheduler.check_integrity().ok());
    const double waste = 1.0 - static_cast<double>(used) / static_cast<double>(held);
    const double mean_users = static_cast<double>(users) / static_cast<double>(steps);
    const SchedulerStats stats = scheduler.stats();
    RecordProperty("waste_percent_" + std::to_string(block_tokens), std::to_string(waste * 100));
    RecordProperty("users_" + std::to_string(block_tokens), std::to_string(mean_users));
    EXPECT_LT(waste, 0.04) << block_tokens;
    EXPECT_GE(mean_users, 3 * 16) << block_tokens;
    // The watermark keeps running sequences from throwing each other out all the time.
    EXPECT_LT(stats.recomputed_tokens, stats.scheduled_tokens / 10);
  }
}

}  // namespace
}  // namespace pelton::sched
