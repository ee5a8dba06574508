#include "engine/timeline.h"

#include <gtest/gtest.h>

#include <vector>

namespace pelton::engine {
namespace {

using std::chrono::milliseconds;

struct Steps {
  TimelineKeeper keeper;
  int32_t reached = 0;
  int64_t now = 0;  // ms since accepted

  // One step of `ms` milliseconds that begins `wait` after the last.
  void run(int32_t first, int32_t rows, bool samples, int64_t ms = 10, int64_t wait = 0) {
    const std::vector<int32_t> tokens(static_cast<size_t>(rows));
    sched::SequenceStep step;
    step.first_position = first;
    step.tokens = tokens;
    step.samples = samples;
    const auto begin = keeper.accepted + milliseconds(now + wait);
    keeper.note_rows(step, 100, {begin, begin + milliseconds(ms)}, &reached);
    now += wait + ms;
  }
};

TEST(Timeline, TellsWaitChunksAndDecodeApart) {
  Steps s;
  s.run(0, 64, false, 30, 50);
  s.run(64, 36, true, 20);
  for (int i = 0; i < 5; ++i) s.run(100 + i, 1, true);
  const RequestTimeline& t = s.keeper.times;
  EXPECT_NEAR(t.scheduled, 0.05, 1e-9);
  EXPECT_NEAR(t.first_token, 0.1, 1e-9);
  ASSERT_EQ(t.prefill_chunks, 2);
  EXPECT_EQ(t.prefill[0].tokens, 64);
  EXPECT_NEAR(t.prefill[1].begin, 0.08, 1e-9);
  EXPECT_NEAR(t.prefill[1].seconds, 0.02, 1e-9);
  EXPECT_EQ(t.decode_steps, 5);
  EXPECT_NEAR(t.decode_seconds, 0.05, 1e-9);
  EXPECT_EQ(t.recomputed_tokens, 0);
}

TEST(Timeline, APrefixThatWasFoundLeavesOneRowOfPrompt) {
  Steps s;
  s.run(99, 1, true);
  EXPECT_EQ(s.keeper.times.prefill_chunks, 1);
  EXPECT_EQ(s.keeper.times.prefill[0].tokens, 1);
  EXPECT_EQ(s.keeper.times.decode_steps, 0);
}

TEST(Timeline, WhatAPreemptionLostIsCountedOnce) {
  Steps s;
  s.run(0, 100, true);
  s.run(100, 1, true);
  s.keeper.note_preemption();
  s.run(0, 64, false);
  s.run(64, 38, true);  // 37 again, one new
  s.run(102, 1, true);
  const RequestTimeline& t = s.keeper.times;
  EXPECT_EQ(t.preemptions, 1);
  EXPECT_EQ(t.recomputed_tokens, 101);
  EXPECT_EQ(t.prefill_chunks, 3);
  EXPECT_EQ(t.decode_steps, 2);
  EXPECT_NEAR(t.first_token, 0.01, 1e-9);
}

TEST(Timeline, TheLastChunkHoldsAllBeyond) {
  Steps s;
  for (int i = 0; i < 40; ++i) s.run(2 * i, 2, false);
  const RequestTimeline& t = s.keeper.times;
  EXPECT_EQ(t.prefill_chunks, 16);
  EXPECT_EQ(t.prefill[14].tokens, 2);
  EXPECT_EQ(t.prefill[15].tokens, 50);
  EXPECT_NEAR(t.prefill[15].seconds, 0.25, 1e-9);
}

}  // namespace
}  // namespace pelton::engine
