#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "bench_lib/batching.h"
#include "bench_lib/isa/peak.h"
#include "bench_lib/roofline.h"
#include "bench_lib/rows.h"
#include "bench_lib/speed.h"
#include "device/testing/fake_device.h"
#include "kernels/ref/device_kernels.h"

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
  auto made = std::make_unique<device::FakeDevice>(size_t{8} << 20);  // events a millisecond apart
  device::FakeDevice& device = *made;
  const auto backend = runtime::Backend::create(std::move(made), kernels::ref::device_kernels());
  ASSERT_TRUE(backend.ok());
  const size_t live = device.live_bytes();
  const auto roofline = measure_device_roofline(**backend);
  ASSERT_TRUE(roofline.ok()) << roofline.status().to_string();
  EXPECT_DOUBLE_EQ(roofline->read_bytes_per_second, 2.0 * (1 << 20) * 1e3);
  EXPECT_EQ(device.live_bytes(), live);
  EXPECT_EQ(device.misuse(), "");
  device.inject(device.calls(), device::FakeFault::kError);
  EXPECT_FALSE(measure_device_roofline(**backend).ok());
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

TEST(Rows, ANameIsWhatItAsksFor) {
  for (const char* name : {"pp512", "pp512@d1024", "pp8x2048", "tg128", "tg32_b64",
                           "tg32_b64@d1024", "tg1@d1", "offline_128/2048", "offline_1/1_r3",
                           "batching_256/256_r1000", "continuous_1/2", "static_3/4_r5"}) {
    const auto row = parse_row(name);
    ASSERT_TRUE(row.ok()) << row.status().to_string();
    EXPECT_EQ(row_name(*row), name);
  }
  EXPECT_EQ(*parse_row("tg32_b64@d1024"),
            (RowSpec{.kind = RowKind::kDecode, .output = 32, .sequences = 64, .depth = 1024}));
  EXPECT_EQ(*parse_row("batching_64/256_r200"),
            (RowSpec{.kind = RowKind::kBatching, .input = 64, .output = 256, .requests = 200}));
  for (const char* name : {"", "pp", "pp0", "pp-1", "pp5x", "pp9999x8", "pp8x8@d1", "tg", "tg8_b",
                           "tg8@d", "tg8@d0", "tg8@d1_b2", "tg99999999999", "offline_8",
                           "offline_8/", "offline_8/8_r", "batching_8x8", "tg128 "}) {
    EXPECT_EQ(parse_row(name).status().code(), StatusCode::kInvalidArgument) << name;
  }
}

TEST(Batching, LengthsAreExponentialAndCut) {
  const RowSpec row = *parse_row("batching_256/256_r1000");
  EXPECT_EQ(batching_context(row), 1792);
  const std::vector<int32_t> lengths = batching_lengths(row, 20000);
  EXPECT_EQ(std::vector<int32_t>(lengths.begin(), lengths.begin() + 100),
            batching_lengths(row, 100));
  double sum = 0;
  int beyond_mean = 0;
  for (const int32_t length : lengths) {
    EXPECT_GE(length, 1);
    EXPECT_LE(length, 1536);
    sum += length;
    beyond_mean += length > 256 ? 1 : 0;
  }
  EXPECT_NEAR(sum / 20000, 256 * (1 - std::exp(-6.0)), 6);
  EXPECT_NEAR(beyond_mean / 20000.0, std::exp(-1.0), 0.012);
}

}  // namespace
}  // namespace pelton::bench_lib
