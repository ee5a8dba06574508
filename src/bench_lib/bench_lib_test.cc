#include <gtest/gtest.h>

#include "bench_lib/isa/peak.h"
#include "bench_lib/roofline.h"
#include "bench_lib/speed.h"
#include "device/testing/fake_device.h"

namespace pelton::bench_lib {
namespace {

TEST(Peak, CountsItsProducts) {
  int32_t sink = 1;
  EXPECT_EQ(int8_peak_generic(10, &sink), 10 * 4 * 8);
  const IsaLevel best = cpu_features().best_level();
  if (best >= IsaLevel::kAvx2) {
    EXPECT_EQ(int8_peak_avx2(10, &sink), 10 * 14 * 32);
  }
  if (best >= IsaLevel::kAvx512) {
    EXPECT_EQ(int8_peak_avx512(10, &sink), 10 * 16 * 64);
  }
  if (best >= IsaLevel::kAmx) {
    EXPECT_EQ(int8_peak_amx(10, &sink), 10 * 4 * 16 * 16 * 64);
  }
}

TEST(Roofline, MeasuresSomething) {
  ThreadPool pool(2);
  const Roofline roofline =
      measure_roofline(pool, cpu_features().best_level(), {size_t{8} << 20, 0.01});
  EXPECT_GT(roofline.read_bytes_per_second, 1e6);
  EXPECT_GT(roofline.int8_ops_per_second, 1e6);
}

TEST(Roofline, OfADeviceCountsBytesReadAndWritten) {
  device::FakeDevice device(size_t{8} << 20);  // whose events are a millisecond apart
  auto stream = device.create_stream();
  ASSERT_TRUE(stream.ok());
  const auto roofline = measure_device_roofline(device, **stream);
  ASSERT_TRUE(roofline.ok()) << roofline.status().to_string();
  EXPECT_DOUBLE_EQ(roofline->read_bytes_per_second, 2.0 * (1 << 20) * 1e3);
  EXPECT_EQ(device.live_bytes(), 0u);
  EXPECT_EQ(device.misuse(), "");
  device.inject(device.calls(), device::FakeFault::kError);
  EXPECT_FALSE(measure_device_roofline(device, **stream).ok());
}

TEST(Bound, DecodeIsBoundByMemoryUntilTheBatchIsLarge) {
  WorkModel work;
  work.streamed_bytes = 1e9;
  work.kv_bytes_per_token = 1e4;
  work.ops_per_token = 2e9;
  work.head_ops = 1e8;
  work.attention_ops_per_key = 1e5;
  const Roofline roofline{1e10, 1e11};
  const Bound one = decode_bound(work, roofline, 1, 1000);
  EXPECT_TRUE(one.memory);
  EXPECT_DOUBLE_EQ(one.seconds, (1e9 + 1e7) / 1e10);
  const Bound many = decode_bound(work, roofline, 16, 1000);
  EXPECT_FALSE(many.memory);
  EXPECT_DOUBLE_EQ(many.seconds, 16 * (2e9 + 1e8 + 1e8) / 1e11);
  const Bound prompt = prefill_bound(work, roofline, 512, 0, 512);
  EXPECT_FALSE(prompt.memory);
  EXPECT_DOUBLE_EQ(prompt.seconds, (512 * (2e9 + 256 * 1e5) + 1e8) / 1e11);
  EXPECT_TRUE(prefill_bound(work, roofline, 512, 0, 1).memory);
}

TEST(Row, MedianSpreadAndLimit) {
  EXPECT_DOUBLE_EQ(median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_DOUBLE_EQ(median({4.0, 1.0, 2.0, 3.0}), 2.5);
  EXPECT_DOUBLE_EQ(median({}), 0.0);
  const SpeedRow row = make_row("tg128", 100.0, {1.0, 2.0, 4.0}, {0.5, true});
  EXPECT_EQ(row.name, "tg128");
  EXPECT_DOUBLE_EQ(row.tokens_per_second, 50.0);
  EXPECT_DOUBLE_EQ(row.spread, 1.5);
  EXPECT_DOUBLE_EQ(row.limit, 200.0);
  EXPECT_TRUE(row.memory_bound);
}

}  // namespace
}  // namespace pelton::bench_lib
