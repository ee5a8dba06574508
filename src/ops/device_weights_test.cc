// Weights made where they lie are what their counters say, in every layout and on every device.
#include "ops/device_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/splitmix.h"
#include "ops/testing/device_harness.h"

namespace pelton::ops {
namespace {

using kernels::RandomWeightsParams;
using kernels::WeightLayout;

class RandomWeightsTest : public testing::TestWithParam<TestDevice> {
 protected:
  void SetUp() override {
    if (!harness_.absent().empty()) GTEST_SKIP() << harness_.absent();
  }
  DeviceHarness harness_{GetParam()};

  // The matrix as floats, made on the device and read back. What lies behind it stays as it was.
  std::vector<float> make(RandomWeightsParams params) {
    harness_.reset();
    const bool is_plain = params.layout == WeightLayout::kSource;
    const size_t bytes =
        is_plain ? static_cast<size_t>(2 * params.rows * params.columns)
                 : kernels::device_weight_bytes(params.layout, params.rows, params.columns);
    constexpr size_t kBehind = 64;
    std::vector<std::byte> host(bytes + kBehind, std::byte{0x5A});
    params.out = harness_.put(std::span<const std::byte>(host));
    if (params.layout == WeightLayout::kFp8Channels ||
        params.layout == WeightLayout::kInt8Channels) {
      params.scale = reinterpret_cast<float*>(
          params.out + kernels::channel_scales_offset(params.rows, params.columns));
    }
    const DeviceStep& device = *harness_.context().device;
    EXPECT_TRUE(random_weights(device.kernels, *device.stream, params).ok());
    EXPECT_TRUE(device.stream->copy_to_host(host.data(), params.out, host.size()).ok());
    harness_.finish();
    for (size_t i = bytes; i < host.size(); ++i) EXPECT_EQ(host[i], std::byte{0x5A});
    std::vector<float> values(static_cast<size_t>(params.rows * params.columns));
    const kernels::WeightMatrix matrix{
        host.data(), bytes, params.rows, params.columns, WeightFormat::kBF16, params.layout};
    for (int64_t row = 0; row < params.rows; ++row) {
      float* to = values.data() + row * params.columns;
      if (!is_plain) {
        kernels::dequantize_device_row(matrix, row, to);
        continue;
      }
      for (int64_t i = 0; i < params.columns; ++i) {
        uint16_t bits;
        std::memcpy(&bits, host.data() + 2 * (row * params.columns + i), sizeof(bits));
        to[i] = bf16_to_f32(bits);
      }
    }
    return values;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, RandomWeightsTest, testing::ValuesIn(kTestDevices),
                         [](const auto& info) { return test_device_name(info.param); });

float expected(WeightLayout layout, float unit, float spread) {
  switch (layout) {
    case WeightLayout::kFp8Channels:
      return spread / 448.0f * fp8_to_f32(f32_to_fp8(448.0f * unit));
    case WeightLayout::kInt8Channels:
      return spread / 127.0f * static_cast<float>(std::lrint(127.0f * unit));
    case WeightLayout::kInt4Groups:
      return f16_to_f32(f32_to_f16(spread / 7.0f)) * static_cast<float>(std::lrint(7.0f * unit));
    default:
      return bf16_to_f32(f32_to_bf16(spread * unit));
  }
}

TEST_P(RandomWeightsTest, AreWhatTheirCountersSay) {
  struct Case {
    WeightLayout layout;
    int64_t rows;
    int64_t columns;
  };
  for (const Case& c :
       {Case{WeightLayout::kSource, 37, 91}, Case{WeightLayout::kSource, 64, 512},
        Case{WeightLayout::kFp8Channels, 35, 576}, Case{WeightLayout::kInt8Channels, 35, 576},
        Case{WeightLayout::kInt4Groups, 48, 384}}) {
    constexpr uint64_t kKey = 0x1234567890ABCDEFull;
    constexpr float kSpread = 0.037f;
    const std::vector<float> values = make(
        {.layout = c.layout, .key = kKey, .spread = kSpread, .rows = c.rows, .columns = c.columns});
    size_t wrong = 0;
    double sum = 0;
    double squares = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const float unit = signed_unit(counter_bits(kKey, i / 4), static_cast<int>(i % 4));
      wrong += values[i] == expected(c.layout, unit, kSpread) ? 0 : 1;
      sum += static_cast<double>(values[i]);
      squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    EXPECT_EQ(wrong, 0u) << kernels::weight_layout_name(c.layout);
    // Every layout holds the same uniform numbers.
    const auto count = static_cast<double>(values.size());
    const double spread = static_cast<double>(kSpread);
    EXPECT_NEAR(sum / count, 0.0, 0.05 * spread);
    EXPECT_NEAR(squares / count, spread * spread / 3, 0.06 * spread * spread);
  }
}

TEST_P(RandomWeightsTest, KernelsWithoutThemSaySo) {
  kernels::DeviceKernels none = harness_.context().device->kernels;
  none.random_weights = nullptr;
  EXPECT_EQ(random_weights(none, *harness_.context().device->stream, {}).code(),
            StatusCode::kUnsupported);
}

}  // namespace
}  // namespace pelton::ops
