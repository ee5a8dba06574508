#include "sched/testing/script.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/rng.h"

namespace pelton::sched {
namespace {

TEST(SchedulerScript, RandomLivesKeepEveryPromise) {
  int64_t preemptions = 0;
  int64_t hits = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    std::vector<uint8_t> bytes(20 + random.below(400));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.next_u32());
    const auto report = testing::run_script(bytes);
    ASSERT_EQ(report.error, "") << "seed " << seed;
    preemptions += report.preemptions;
    hits += report.prefix_hits;
  }
  // The scripts reach what they are for.
  EXPECT_GT(preemptions, 100);
  EXPECT_GT(hits, 1000);
}

RC_GTEST_PROP(SchedulerScript, AnyBytesKeepEveryPromise, (const std::vector<uint8_t>& bytes)) {
  RC_ASSERT(testing::run_script(bytes).error == "");
}

}  // namespace
}  // namespace pelton::sched
