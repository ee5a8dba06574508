// The one table of product problems: correctness at every ISA level, invariance, and the benchmark
// draw from it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "core/dtype.h"
#include "kernels/params/matmul.h"

namespace pelton::ops {

// Segments share one activation and lie side by side in the output.
struct MatmulCase {
  const char* name;
  std::vector<int64_t> segment_rows;
  int64_t columns;
  bool bias;
  bool accumulate;
};

// Shapes for a format of `block` elements: odd and padded N, short and long K, several segments.
inline std::vector<MatmulCase> matmul_cases(int block) {
  if (block == 256) {
    return {{"one_block", {16}, 256, false, false},
            {"odd_rows", {37}, 512, true, false},
            {"segments", {48, 16, 5}, 1536, true, false},
            {"long", {33}, 4864 / 256 * 256, false, true},
            {"one_row", {1}, 768, true, true}};
  }
  return {{"one_block", {16}, 32, false, false},
          {"odd_rows", {37}, 96, true, false},
          {"segments", {48, 16, 5}, 576, true, false},
          {"long", {33}, 4864, false, true},
          {"one_row", {1}, 896, true, true}};
}

inline constexpr std::array<int64_t, 7> kMatmulRows = {1, 2, 3, 7, 8, 16, 33};

// Layer shapes of real models, for timing.
struct LayerShape {
  const char* name;
  WeightFormat format;
  int64_t rows;
  int64_t columns;
};
inline constexpr LayerShape kLayerShapes[] = {
    {"135m.qkv", WeightFormat::kQ4_1, 960, 576},
    {"135m.o", WeightFormat::kQ4_1, 576, 576},
    {"135m.gate_up", WeightFormat::kQ4_1, 3072, 576},
    {"135m.down", WeightFormat::kQ4_1, 576, 1536},
    {"135m.head", WeightFormat::kQ8_0, 49152, 576},
    {"270m.gate_up", WeightFormat::kQ5_0, 4096, 640},
    {"270m.head", WeightFormat::kQ8_0, 262144, 640},
    {"0.5b.qkv", WeightFormat::kQ5_0, 1152, 896},
    {"0.5b.gate_up", WeightFormat::kQ5_0, 9728, 896},
    {"0.5b.down_q4", WeightFormat::kQ4_K, 896, 4864},
    {"0.5b.down_q6", WeightFormat::kQ6_K, 896, 4864},
    {"0.5b.head", WeightFormat::kQ8_0, 151936, 896},
    {"1.5b.qkv", WeightFormat::kQ4_K, 2048, 1536},
    {"1.5b.gate_up", WeightFormat::kQ4_K, 17920, 1536},
    {"1.5b.down_q4", WeightFormat::kQ4_K, 1536, 8960},
    {"1.5b.down_q6", WeightFormat::kQ6_K, 1536, 8960},
    {"1.5b.head", WeightFormat::kQ6_K, 151936, 1536},
};

// A matrix in the file's layout: random codes, block scales that give values of about `size`.
inline std::vector<std::byte> random_weight(WeightFormat format, int64_t rows, int64_t columns,
                                            float size, Random& rng) {
  using enum WeightFormat;
  const WeightFormatInfo& info = weight_format_info(format);
  const auto blocks = static_cast<size_t>(rows * columns / info.block_elements);
  std::vector<std::byte> bytes(blocks * static_cast<size_t>(info.block_bytes));
  for (size_t i = 0; i < bytes.size(); i += 4) {
    const uint32_t word = rng.next_u32();
    std::memcpy(bytes.data() + i, &word, std::min<size_t>(4, bytes.size() - i));
  }
  const auto put16 = [](std::byte* at, uint16_t bits) {
    at[0] = static_cast<std::byte>(bits & 0xFF);
    at[1] = static_cast<std::byte>(bits >> 8);
  };
  const auto uniform = [&rng] { return static_cast<float>(rng.next_u32() >> 8) * 0x1.0p-24f; };
  // The largest |scale product * code| of one block, so that d = size / it.
  const auto largest = [](WeightFormat f) -> float {
    switch (f) {
      case kQ4_0:
        return 8;
      case kQ4_1:
        return 15;
      case kQ5_0:
        return 16;
      case kQ5_1:
        return 31;
      case kQ2_K:
        return 45;
      case kQ3_K:
        return 128;
      case kQ4_K:
        return 63 * 15;
      case kQ5_K:
        return 63 * 31;
      case kQ6_K:
        return 128 * 32;
      case kIQ4_XS:
        return 32 * 127;
      default:
        return 127;
    }
  };
  for (size_t i = 0; i < blocks; ++i) {
    std::byte* b = bytes.data() + i * static_cast<size_t>(info.block_bytes);
    const uint16_t d = f32_to_f16(size * (0.5f + 0.5f * uniform()) / largest(format));
    const uint16_t m = f32_to_f16(size * (uniform() - 0.5f));
    const uint16_t m6 = f32_to_f16(size * (uniform() - 0.5f) / 63.0f);
    switch (format) {
      case kF32: {
        const float value = size * (2 * uniform() - 1);
        std::memcpy(b, &value, sizeof(value));
        break;
      }
      case kF16:
        put16(b, f32_to_f16(size * (2 * uniform() - 1)));
        break;
      case kBF16:
        put16(b, f32_to_bf16(size * (2 * uniform() - 1)));
        break;
      case kQ4_0:
      case kQ5_0:
      case kQ8_0:
      case kIQ4_NL:
      case kIQ4_XS:
        put16(b, d);
        break;
      case kQ4_1:
      case kQ5_1:
        put16(b, d);
        put16(b + 2, m);
        break;
      case kQ4_K:
      case kQ5_K:
        put16(b, d);
        put16(b + 2, m6);
        break;
      case kQ2_K:
        put16(b + 80, d);
        put16(b + 82, m6);
        break;
      case kQ3_K:
        put16(b + 108, d);
        break;
      case kQ6_K:
        put16(b + 208, d);
        break;
      case kMXFP4:
        b[0] = static_cast<std::byte>(118 + static_cast<int>(uniform() * 6));
        break;
      case kCount:
        break;
    }
  }
  return bytes;
}

}  // namespace pelton::ops
