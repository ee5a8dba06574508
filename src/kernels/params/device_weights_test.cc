#include "kernels/params/device_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace pelton::kernels {
namespace {

constexpr WeightLayout kLayouts[] = {WeightLayout::kFp8Channels, WeightLayout::kInt8Channels,
                                     WeightLayout::kInt4Groups};
constexpr int64_t kColumns = 256;

// One tile, there and back; empty where it is refused.
std::vector<float> there_and_back(WeightLayout layout, const std::vector<float>& values) {
  const auto rows = static_cast<int64_t>(values.size()) / kColumns;
  std::vector<std::byte> bytes(device_weight_bytes(layout, rows, kColumns));
  float scale = -1;
  if (!quantize_tile(layout, kColumns, values,
                     std::span(bytes).first(device_tile_bytes(layout, kColumns)), &scale)) {
    return {};
  }
  if (layout != WeightLayout::kInt4Groups)
    std::memcpy(bytes.data() + channel_scales_offset(rows, kColumns), &scale, sizeof(scale));
  std::vector<float> back(values.size());
  const WeightMatrix matrix{bytes.data(), bytes.size(),        rows,
                            kColumns,     WeightFormat::kBF16, layout};
  for (int64_t row = 0; row < rows; ++row)
    dequantize_device_row(matrix, row, back.data() + row * kColumns);
  return back;
}

std::vector<float> random_tile(WeightLayout layout, float size) {
  Random random(7);
  std::vector<float> values(static_cast<size_t>(device_tile_rows(layout) * kColumns));
  for (float& v : values) v = size * random.normal();
  return values;
}

TEST(DeviceWeightsTest, ValuesComeBackWithinHalfAStep) {
  for (const WeightLayout layout : kLayouts) {
    const std::vector<float> values = random_tile(layout, 0.05f);
    const std::vector<float> back = there_and_back(layout, values);
    ASSERT_EQ(back.size(), values.size());
    const bool is_int4 = layout == WeightLayout::kInt4Groups;
    const size_t group = is_int4 ? 128 : static_cast<size_t>(kColumns);
    for (size_t i = 0; i < values.size(); ++i) {
      float largest = 0;
      for (size_t j = i / group * group; j < i / group * group + group; ++j)
        largest = std::max(largest, std::fabs(values[j]));
      // The end that has one code less is missed by a whole step.
      const float step = layout == WeightLayout::kFp8Channels
                             ? std::fabs(values[i]) / 8 + largest * 0x1p-9f / 448 * 2
                             : largest / (is_int4 ? 3.5f : 127.0f);
      EXPECT_NEAR(back[i], values[i], 0.51f * step) << weight_layout_name(layout) << " " << i;
    }
  }
}

TEST(DeviceWeightsTest, TheLargestOfAGroupIsKeptWhateverItsSign) {
  for (const float sign : {-1.0f, 1.0f}) {
    std::vector<float> values(16 * kColumns);
    Random random(3);
    for (float& v : values) v = 0.3f * static_cast<float>(random.uniform()) - 0.15f;
    // Steps of an eighth: -8 to 7 of them hold every value exactly.
    for (float& v : values) v = std::nearbyint(v * 32) / 32;
    for (int64_t row = 0; row < 16; ++row) {
      for (int64_t group = 0; group < kColumns; group += 128)
        values[static_cast<size_t>(row * kColumns + group + row)] = sign * 8 * 0x1p-5f;
    }
    EXPECT_EQ(there_and_back(WeightLayout::kInt4Groups, values), values) << sign;
  }
}

TEST(DeviceWeightsTest, Fp8CodesAreThoseOfTheNumberFormat) {
  for (const float shift : {0.0f, 0.5f, 0.25f, 0.7501f}) {  // between neighbours
    std::vector<float> values(kColumns, 448.0f);
    for (int i = 0; i < 126; ++i) {
      const float low = fp8_to_f32(static_cast<uint8_t>(i));
      const float high = fp8_to_f32(static_cast<uint8_t>(i + 1));
      values[static_cast<size_t>(i)] = low + shift * (high - low);
      values[static_cast<size_t>(i) + 128] = -values[static_cast<size_t>(i)];
    }
    std::vector<std::byte> codes(values.size());
    float scale = 0;
    ASSERT_TRUE(quantize_tile(WeightLayout::kFp8Channels, kColumns, values, codes, &scale));
    ASSERT_EQ(scale, 1.0f);
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(static_cast<uint8_t>(codes[i]), f32_to_fp8(values[i])) << values[i];
  }
}

TEST(DeviceWeightsTest, ExtremesNeitherOverflowNorVanishIntoNan) {
  for (const WeightLayout layout : kLayouts) {
    for (const float size : {0.0f, 1e-44f, 1e-39f, 1e-30f, 1e9f, 1e37f}) {
      const std::vector<float> values = random_tile(layout, size);
      const std::vector<float> back = there_and_back(layout, values);
      ASSERT_EQ(back.size(), values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_TRUE(std::isfinite(back[i])) << weight_layout_name(layout) << " " << size;
        ASSERT_LE(std::fabs(back[i]), 8 * size);
      }
    }
  }
}

TEST(DeviceWeightsTest, WhatIsNotFiniteIsRefused) {
  for (const WeightLayout layout : kLayouts) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      std::vector<float> values = random_tile(layout, 1.0f);
      values[values.size() / 2] = bad;
      EXPECT_TRUE(there_and_back(layout, values).empty()) << weight_layout_name(layout) << bad;
    }
  }
}

}  // namespace
}  // namespace pelton::kernels
