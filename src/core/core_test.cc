#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "core/dtype.h"

namespace pelton {
namespace {

TEST(DType, HalfRoundTripsEveryValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_f32(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      EXPECT_EQ(f32_to_f16(value), half);
    }
  }
}

TEST(DType, HalfRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const double low = f16_to_f32(static_cast<uint16_t>(bits));
    const double high = f16_to_f32(static_cast<uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    EXPECT_EQ(f32_to_f16(middle), bits + (bits & 1)) << bits;
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 1e9f)), bits + 1);
  }
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
}

TEST(DType, Fp8RoundTripsAndRounds) {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = fp8_to_f32(static_cast<uint8_t>(bits));
    if (!std::isnan(value)) {
      EXPECT_EQ(f32_to_fp8(value), bits);
    }
  }
  for (int bits = 0; bits < 0x7E; ++bits) {
    const float low = fp8_to_f32(static_cast<uint8_t>(bits));
    const float high = fp8_to_f32(static_cast<uint8_t>(bits + 1));
    EXPECT_EQ(f32_to_fp8((low + high) / 2), bits + (bits & 1)) << bits;
  }
  EXPECT_EQ(f32_to_fp8(1e9f), 0x7E);
}

TEST(DType, Bf16RoundsToNearestEven) {
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3F80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F808000u)), 0x3F80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F818000u)), 0x3F82);
}

TEST(WeightFormat, BytesNeedWholeBlocks) {
  EXPECT_EQ(weight_bytes(WeightFormat::kQ4_K, 512), 288u);
  EXPECT_EQ(weight_bytes(WeightFormat::kQ4_K, 500), std::nullopt);
  EXPECT_EQ(weight_bytes(WeightFormat::kF32, uint64_t{1} << 62), std::nullopt);
  EXPECT_EQ(parse_weight_format("q4_k"), WeightFormat::kQ4_K);
  EXPECT_EQ(parse_weight_format("q4"), std::nullopt);
}

}  // namespace
}  // namespace pelton
