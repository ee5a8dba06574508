#include <gtest/gtest.h>

#include "base/rng.h"
#include "sched/scheduler_script.h"

namespace pelton::sched {
namespace {

TEST(SchedulerScript, RandomLivesKeepEveryPromise) {
  int64_t preemptions = 0;
  int64_t hits = 0;
  int32_t requests = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    std::vector<uint8_t> bytes(20 + random.below(400));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.next_u32());
    const auto report = testing::run_script(bytes);
    ASSERT_EQ(report.error, "") << "seed " << seed;
    preemptions += report.preemptions;
    hits += report.prefix_hits;
    requests += report.requests;
  }
  // The scripts reach what they are for.
  EXPECT_GT(preemptions, 100) << requests;
  EXPECT_GT(hits, 1000);
}

}  // namespace
}  // namespace pelton::sched
