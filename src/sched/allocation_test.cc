// Steps take no memory once warm.
#include <gtest/gtest.h>

#include "sched/testing/requests.h"
#include "tests/support/allocation_hook.h"

namespace pelton::sched {
namespace {

TEST(SchedulerAllocation, StepsTakeNoMemory) {
  SchedulerConfig config = testing::small_config();
  config.num_blocks = 60;
  Scheduler scheduler(config);
  uint64_t in_steps = 0;
  std::vector<SampledToken> sampled;
  sampled.reserve(64);
  RequestId next = 0;
  for (int i = 0; i < 2000; ++i) {
    if (i % 5 == 0 && scheduler.stats().waiting < 8) {
      Request request = testing::make_request(1 + i % 90, 60, static_cast<uint64_t>(i % 17));
      if (i % 3 == 0) request.sampling.n = 3;
      if (i % 7 == 0) request.sampling.stop_token_ids = {5};
      ASSERT_TRUE(scheduler.add(next++, request).ok());
    }
    const pelton::testing::AllocationCounter counter;
    const StepPlan& plan = scheduler.plan();
    sampled.clear();
    for (const SequenceStep& step : plan.sequences) {
      if (step.samples) sampled.push_back({step.sequence, (i * 7) % 31});
    }
    scheduler.commit(plan, sampled);
    if (i >= 200) in_steps += counter.calls();
  }
  EXPECT_EQ(in_steps, 0u);
  EXPECT_GT(scheduler.stats().preemptions, 0);
  EXPECT_GT(scheduler.stats().prefix_hit_tokens, 0);
}

// A request that memory does not suffice for is as if it had never come.
TEST(SchedulerAllocation, FailedAddLeavesNothing) {
  for (const int32_t beams : {1, 3}) {
    Scheduler scheduler(testing::small_config());
    Request request = testing::make_request(20, 4);
    request.cache_salt = "a salt that is too long for a short string";
    request.sampling.num_beams = beams;
    if (beams == 1) request.sampling.n = 3;
    uint64_t k = 1;
    for (bool happened = true; happened; ++k) {
      StatusCode code = StatusCode::kOk;
      {
        const pelton::testing::AllocationFailure failure(
            k, pelton::testing::AllocationFailure::Mode::kOnce);
        try {
          code = scheduler.add(k, request).status().code();
        } catch (const std::bad_alloc&) {
          code = StatusCode::kResourceExhausted;
        }
        happened = failure.happened();
      }
      EXPECT_EQ(code, happened ? StatusCode::kResourceExhausted : StatusCode::kOk) << k;
      EXPECT_TRUE(scheduler.check_integrity().ok()) << k;
      EXPECT_EQ(scheduler.stats().waiting, happened ? 0 : 3) << k;
    }
    EXPECT_GT(k, 10u);
    {
      const pelton::testing::AllocationCounter counter;
      EXPECT_EQ(scheduler.cancel(k - 1).size(), 3u);
      EXPECT_EQ(counter.calls(), 0u);
    }
    EXPECT_TRUE(scheduler.plan().empty());
  }
}

}  // namespace
}  // namespace pelton::sched
