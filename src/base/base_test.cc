#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/checked.h"
#include "base/cpu_features.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "base/thread_turns.h"
#include "base/utf8.h"
#include "tests/support/temp_dir.h"

namespace pelton {
namespace {

TEST(ThreadPool, RunsEachItemOnce) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (int64_t n : {0, 1, 2, 5, 100, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
      pool.parallel_for(n, [&](int64_t i, int thread) {
        EXPECT_LT(thread, threads);
        seen[static_cast<size_t>(i)].fetch_add(1);
      });
      for (const auto& count : seen) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadTurns, AreShortForTheThreadThatAsks) {
  std::thread([] {
    const uint64_t before = turn_nanoseconds();
    const int policy = sched_getscheduler(0);
    const int nice = getpriority(PRIO_PROCESS, 0);
    prefer_short_turns();
    EXPECT_EQ(sched_getscheduler(0), policy);
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), nice);
    EXPECT_EQ(turn_nanoseconds(), std::min<uint64_t>(before, 100'000));
  }).join();
  const uint64_t own = turn_nanoseconds();
  EXPECT_TRUE(own == 0 || own > 100'000) << own;
}

TEST(ThreadPool, ManySmallJobs) {
  ThreadPool pool(4);
  std::atomic<int64_t> sum{0};
  for (int job = 0; job < 5000; ++job) pool.parallel_for(4, [&](int64_t i, int) { sum += i; });
  EXPECT_EQ(sum.load(), 5000 * 6);
}

// Workers that wake too late for a job must not touch it: its state is gone by then.
TEST(ThreadPool, LateWorkersLeaveAFinishedJobAlone) {
  ThreadPool pool(9);
  for (int job = 0; job < 3000; ++job) {
    auto seen = std::make_unique<std::vector<std::atomic<int>>>(static_cast<size_t>(1 + job % 20));
    pool.parallel_for(static_cast<int64_t>(seen->size()),
                      [&](int64_t i, int) { (*seen)[static_cast<size_t>(i)].fetch_add(1); });
    for (const auto& count : *seen) ASSERT_EQ(count.load(), 1) << job;
  }
}

TEST(ThreadPool, RethrowsAndGoesOn) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(pool.parallel_for(64, [](int64_t i, int) { check(i != 40, "planted"); }),
                 InternalError);
    std::atomic<int> count{0};
    pool.parallel_for(64, [&](int64_t, int) { ++count; });
    EXPECT_EQ(count.load(), 64);
  }
}

TEST(Checked, RefusesOverflowAndZero) {
  EXPECT_EQ(checked_mul<uint64_t>(1ull << 32, 1ull << 32), std::nullopt);
  EXPECT_EQ(checked_add<uint64_t>(~0ull, 1), std::nullopt);
  EXPECT_EQ(checked_align(5, 0), std::nullopt);
  EXPECT_EQ(checked_align(5, 4), 8u);
  EXPECT_EQ(checked_align(~0ull - 1, 4096), std::nullopt);
  const int64_t zero[] = {3, 0};
  EXPECT_EQ(checked_product(zero), std::nullopt);
  EXPECT_EQ(checked_cast<int32_t>(int64_t{1} << 40), std::nullopt);
}

TEST(Utf8, RefusesWhatIsNotUtf8) {
  EXPECT_TRUE(is_valid_utf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"));
  for (const char* bad : {"\x80", "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                          "\xE2\x82", "\xFF"}) {
    EXPECT_FALSE(is_valid_utf8(bad)) << bad;
  }
  // One replacement for each maximal part, as Python's decode(errors="replace") gives.
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98 x"), "\xEF\xBF\xBD x");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Utf8, FindsTheUnfinishedTail) {
  const std::string text = "a\xF0\x9F\x98\x80";
  EXPECT_EQ(incomplete_utf8_suffix(text), 0u);
  EXPECT_EQ(incomplete_utf8_suffix(text.substr(0, 4)), 3u);
  EXPECT_EQ(incomplete_utf8_suffix(text.substr(0, 2)), 1u);
  EXPECT_EQ(incomplete_utf8_suffix("a\x80"), 0u);
}

TEST(Rng, PhiloxKnownAnswer) {
  // From the authors' test vectors for philox4x32-10.
  const auto zero = philox4x32({0, 0, 0, 0}, {0, 0});
  EXPECT_EQ(zero[0], 0x6627e8d5u);
  EXPECT_EQ(zero[3], 0x9b00dbd8u);
  const auto ones = philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u});
  EXPECT_EQ(ones[0], 0x408f276du);
}

TEST(File, AtomicWriteLeavesNothingBehind) {
  const pelton::testing::TempDir dir;
  EXPECT_TRUE(write_file_atomically(dir.path() / "a", "one").ok());
  EXPECT_TRUE(write_file_atomically(dir.path() / "a", "two").ok());
  EXPECT_EQ(*read_file(dir.path() / "a", 100), "two");
  EXPECT_FALSE(write_file_atomically(dir.path() / "missing/a", "x").ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
  EXPECT_EQ(read_file(dir.path() / "a", 2).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(read_file(dir.path(), 100).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MappedFile::open(dir.path() / "none").status().code(), StatusCode::kNotFound);
}

TEST(File, TruncationWhileMappedIsSeenNotFatal) {
  const pelton::testing::TempDir dir;
  ASSERT_TRUE(write_file_atomically(dir.path() / "a", std::string(20000, 'x')).ok());
  auto file = MappedFile::open(dir.path() / "a");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(std::to_integer<char>((*file)->bytes()[19999]), 'x');
  std::filesystem::resize_file(dir.path() / "a", 100);
  EXPECT_EQ(std::to_integer<char>((*file)->bytes()[19999]), '\0');
  EXPECT_TRUE(truncated_while_mapped());
}

}  // namespace
}  // namespace pelton
