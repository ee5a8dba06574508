#include "runtime/graph_cache.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "device/testing/fake_device.h"

namespace pelton::runtime {
namespace {

using device::FakeCall;
using device::FakeDevice;
using device::FakeFault;

TEST(DecodeBuckets, HoldEveryNumberOfRowsWithLittlePadding) {
  for (const int32_t most : {1, 2, 3, 7, 8, 9, 100, 256, 300, 512, 1000}) {
    const std::vector<int32_t> buckets = decode_buckets(most);
    EXPECT_EQ(buckets.back(), most);
    const GraphCache cache(most);
    for (int32_t rows = 1; rows <= most; ++rows) {
      const int32_t bucket = cache.bucket(rows);
      EXPECT_GE(bucket, rows);
      EXPECT_LE(bucket, rows <= 8 ? 2 * rows : rows + std::max(7, rows / 2));
    }
    EXPECT_EQ(cache.bucket(most + 1), 0);
  }
  EXPECT_EQ(decode_buckets(20), (std::vector<int32_t>{1, 2, 4, 8, 16, 20}));
  EXPECT_EQ(GraphCache(0).bucket(1), 0);
}

struct Rig {
  Rig() : stream(std::move(*device.create_stream())) { memory = *device.allocate(4); }
  // A step that adds one to a counter.
  Status queue() {
    ++queued;
    if (Status s = stream->call([this] { ++*static_cast<int32_t*>(memory); }); !s.ok()) return s;
    return stream->launched("count");
  }
  int32_t count() {
    EXPECT_TRUE(stream->finish().ok());
    return *static_cast<int32_t*>(memory);
  }

  FakeDevice device;
  std::unique_ptr<device::Stream> stream;
  void* memory = nullptr;
  int queued = 0;
};

TEST(GraphCache, RunsThenCapturesThenReplays) {
  Rig rig;
  ASSERT_TRUE(rig.stream->fill(rig.memory, 0, 4).ok());
  GraphCache cache(8);
  for (int step = 1; step <= 6; ++step) {
    ASSERT_TRUE(cache.run(8, *rig.stream, [&] { return rig.queue(); }).ok());
    EXPECT_EQ(rig.count(), step);
    EXPECT_EQ(rig.queued, std::min(step, 2));
  }
  EXPECT_EQ(cache.replays(), 5);
  EXPECT_EQ(cache.fault(), "");
}

TEST(GraphCache, AStepThatCannotBeCapturedRunsAsItIs) {
  Rig rig;
  ASSERT_TRUE(rig.stream->fill(rig.memory, 0, 4).ok());
  GraphCache cache(8);
  ASSERT_TRUE(cache.run(2, *rig.stream, [&] { return rig.queue(); }).ok());
  int attempts = 0;
  const auto refuses_capture = [&]() -> Status {
    return ++attempts == 1 ? unsupported("not while capturing") : rig.queue();
  };
  ASSERT_TRUE(cache.run(2, *rig.stream, refuses_capture).ok());
  EXPECT_EQ(rig.count(), 2);
  EXPECT_EQ(cache.fault(), "not while capturing");
  EXPECT_EQ(cache.bucket(2), 0);
}

TEST(GraphCache, RecoversFromAnExceptionWithinACapture) {
  Rig rig;
  ASSERT_TRUE(rig.stream->fill(rig.memory, 0, 4).ok());
  GraphCache cache(4);
  EXPECT_FALSE(cache.recover(*rig.stream));
  ASSERT_TRUE(cache.run(4, *rig.stream, [&] { return rig.queue(); }).ok());
  const auto throws = [&]() -> Status { throw InternalError("in the middle"); };
  EXPECT_ANY_THROW(static_cast<void>(cache.run(4, *rig.stream, throws)));
  EXPECT_TRUE(cache.recover(*rig.stream));
  EXPECT_FALSE(cache.fault().empty());
  ASSERT_TRUE(rig.queue().ok());
  EXPECT_EQ(rig.count(), 2) << "what was captured is dropped, what follows runs";
}

}  // namespace
}  // namespace pelton::runtime
