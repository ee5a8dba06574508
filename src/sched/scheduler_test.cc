#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/rng.h"
#include "sched/scheduler_sim.h"

namespace pelton::sched {
namespace {

using testing::Simulator;

SchedulerConfig small_config() {
  SchedulerConfig config;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 64;
  config.max_model_len = 256;
  config.block_tokens = 8;
  config.num_blocks = 128;
  return config;
}

Request make_request(int32_t prompt, int32_t max_tokens, uint64_t seed = 1) {
  Request request;
  Random random(seed);
  for (int32_t i = 0; i < prompt; ++i) {
    request.prompt_ids.push_back(static_cast<int32_t>(random.below(1000)));
  }
  request.sampling.max_tokens = max_tokens;
  return request;
}

// What the stand-in model says without any scheduler.
std::vector<int32_t> expected(const Simulator& sim, const Request& request, int32_t length,
                              uint64_t stream = 0) {
  std::vector<int32_t> tokens = request.prompt_ids;
  uint64_t history = 0;
  for (int32_t token : tokens) history = Simulator::absorb(history, token);
  while (static_cast<int32_t>(tokens.size()) < length) {
    tokens.push_back(sim.next_token(history, stream));
    history = Simulator::absorb(history, tokens.back());
  }
  return tokens;
}

TEST(Scheduler, RunsOneRequestToItsEnd) {
  Simulator sim(small_config());
  const Request request = make_request(20, 10);
  const auto ids = sim.add(1, request);
  ASSERT_EQ(ids.size(), 1u);
  ASSERT_TRUE(sim.run(100)) << sim.error();
  EXPECT_EQ(sim.result(ids[0]).finish, FinishReason::kLength);
  EXPECT_EQ(sim.result(ids[0]).tokens, expected(sim, request, 30));
  EXPECT_EQ(sim.steps(), 10);
  EXPECT_EQ(sim.scheduler().stats().free_blocks, 128);
}

TEST(Scheduler, TinyPoolsGiveTheTokensOfALargeOne) {
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
      ASSERT_TRUE(sim.run(5000)) << sim.error();
      for (size_t i = 0; i < ids.size(); ++i) {
        const auto length = static_cast<int32_t>(requests[i].prompt_ids.size()) + 60;
        EXPECT_EQ(sim.result(ids[i]).tokens, expected(sim, requests[i], length)) << blocks << i;
        EXPECT_EQ(sim.result(ids[i]).ends, 1);
      }
      if (blocks == 16) {
        EXPECT_GT(sim.scheduler().stats().preemptions, 0);
      }
      EXPECT_EQ(sim.scheduler().stats().free_blocks, blocks);
    }
  }
}

TEST(Scheduler, BeamsAndCompletionsShareAndSplit) {
  for (int32_t blocks : {40, 128}) {
    SchedulerConfig config = small_config();
    config.num_blocks = blocks;
    Simulator sim(config);
    for (uint64_t i = 0; i < 6; ++i) {
      Request request = make_request(10 + static_cast<int32_t>(i * 5), 30, i);
      (i % 2 == 0 ? request.sampling.n : request.sampling.num_beams) = 4;
      ASSERT_EQ(sim.add(i, request).size(), 4u);
    }
    ASSERT_TRUE(sim.run(3000)) << sim.error();
    for (const auto& [id, result] : sim.results()) EXPECT_EQ(result.ends, 1) << id;
    EXPECT_EQ(sim.scheduler().stats().free_blocks, blocks);
  }
}

}  // namespace
}  // namespace pelton::sched
