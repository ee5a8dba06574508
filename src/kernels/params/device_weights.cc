#include "kernels/params/device_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/matmul/int4_pack.h"

namespace pelton::kernels {
namespace {

constexpr size_t kScaleAlignment = 64;
constexpr float kLargestFp8 = 448.0f;
constexpr float kLargestInt8 = 127.0f;
constexpr float kLargestF16 = 65504.0f;

// To the nearest whole number, even ones at ties, of |x| < 2^22: beyond 2^23 floats are whole.
float nearest(float x) {
  constexpr float kWhole = 0x1.8p23f;
  return (x + kWhole) - kWhole;
}

// Of finite values; as bits, NaN and infinity are larger than any of them.
bool largest_of(std::span<const float> values, float* largest) {
  uint32_t bits = 0;
  for (const float v : values) bits = std::max(bits, std::bit_cast<uint32_t>(v) & 0x7FFFFFFFu);
  *largest = std::bit_cast<float>(bits);
  return bits < 0x7F800000u;
}

// 1 / step, 0 where that is too large for a float: such values become 0.
float inverse_of(float step) {
  return std::fabs(step) >= std::numeric_limits<float>::min() ? 1.0f / step : 0.0f;
}

// f32_to_fp8 of finite values, without branches: a loop of it becomes vectors.
uint32_t fp8_code(float value) {
  constexpr uint32_t kSmallestNormal = 0x3C800000u;  // 2^-6
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const uint32_t normal = (magnitude + 0x7FFFFu + (magnitude >> 20 & 1u) - 0x3C000000u) >> 20;
  const float aligned = std::bit_cast<float>(std::min(magnitude, kSmallestNormal)) + 0x1p14f;
  const uint32_t subnormal = std::bit_cast<uint32_t>(aligned) - 0x46800000u;
  const uint32_t code = magnitude < kSmallestNormal ? subnormal : std::min(normal, 0x7Eu);
  return code | (bits >> 24 & 0x80u);
}

bool quantize_channel(WeightLayout layout, std::span<const float> values, std::byte* out,
                      float* scale) {
  const bool is_fp8 = layout == WeightLayout::kFp8Channels;
  float largest;
  if (!largest_of(values, &largest)) return false;
  const float step = largest / (is_fp8 ? kLargestFp8 : kLargestInt8);
  const float inverse = inverse_of(step);
  if (is_fp8) {
    for (size_t i = 0; i < values.size(); ++i)
      out[i] = static_cast<std::byte>(fp8_code(values[i] * inverse));
  } else {
    // At most 127 and the rounding of a product: the nearest whole number is in range.
    for (size_t i = 0; i < values.size(); ++i)
      out[i] = static_cast<std::byte>(static_cast<int32_t>(nearest(values[i] * inverse)));
  }
  *scale = inverse == 0.0f ? 0.0f : step;
  return true;
}

using Group = std::span<const float, cuda::kInt4Group>;
using Codes = std::array<uint8_t, cuda::kInt4Group>;

// Codes for a scale, and the sum of squares that they miss by. In loops that a compiler turns into
// vectors.
float int4_codes(Group values, float scale, Codes* codes) {
  constexpr size_t kLanes = 8;
  const float inverse = inverse_of(scale);
  std::array<int32_t, cuda::kInt4Group> steps;
  std::array<float, kLanes> errors = {};
  for (size_t i = 0; i < steps.size(); ++i) {
    // Cut to eight steps as bits, which order magnitudes as numbers do.
    constexpr uint32_t kEight = std::bit_cast<uint32_t>(8.0f);
    const auto bits = std::bit_cast<uint32_t>(values[i] * inverse);
    const uint32_t magnitude = std::min(bits & 0x7FFFFFFFu, kEight);
    const float step = std::bit_cast<float>(magnitude | (bits & 0x80000000u));
    steps[i] = std::min(static_cast<int32_t>(nearest(step)), 7);
  }
  for (size_t i = 0; i < steps.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float miss = values[i + lane] - static_cast<float>(steps[i + lane]) * scale;
      errors[lane] += miss * miss;
    }
  }
  for (size_t i = 0; i < steps.size(); ++i) (*codes)[i] = static_cast<uint8_t>(steps[i] + 8);
  return std::accumulate(errors.begin(), errors.end(), 0.0f);
}

// Codes 0..15 of one group of finite values, and its scale as f16 bits: the value of the largest
// magnitude becomes code 0 or code 15 (-8 or 7 steps), whichever misses less.
uint16_t quantize_group(Group values, uint8_t* codes) {
  float largest;
  largest_of(values, &largest);
  bool is_positive = false;
  for (const float v : values) is_positive |= v == largest;
  if (!is_positive) largest = -largest;
  const auto scale_of = [&](float steps) {
    return f32_to_f16(std::clamp(largest / steps, -kLargestF16, kLargestF16));
  };
  const uint16_t low = scale_of(-8.0f);
  const uint16_t high = scale_of(7.0f);
  Codes low_codes;
  Codes high_codes;
  const float low_error = int4_codes(values, f16_to_f32(low), &low_codes);
  const float high_error = int4_codes(values, f16_to_f32(high), &high_codes);
  const bool takes_low = low_error <= high_error;
  std::ranges::copy(takes_low ? low_codes : high_codes, codes);
  return takes_low ? low : high;
}

bool quantize_int4(int64_t columns, std::span<const float> values, std::span<std::byte> out) {
  float largest;
  if (!largest_of(values, &largest)) return false;
  const int64_t rows = std::ssize(values) / columns;
  const int64_t groups = columns / cuda::kInt4Group;
  std::vector<uint8_t> codes(values.size());
  std::vector<uint16_t> scales(static_cast<size_t>(rows * groups));
  for (size_t g = 0; g < scales.size(); ++g) {
    const size_t begin = g * cuda::kInt4Group;
    scales[g] =
        quantize_group(Group(values.subspan(begin, cuda::kInt4Group)), codes.data() + begin);
  }
  cuda::int4_pack(codes, scales, rows, columns, out);
  return true;
}

}  // namespace

const char* weight_layout_name(WeightLayout layout) {
  switch (layout) {
    case WeightLayout::kFp8Channels:
      return "fp8";
    case WeightLayout::kInt8Channels:
      return "int8";
    case WeightLayout::kInt4Groups:
      return "int4";
    default:
      return "";
  }
}

bool fits_device_layout(WeightLayout layout, int64_t columns) {
  return columns % (layout == WeightLayout::kInt4Groups ? cuda::kInt4Group : 16) == 0;
}

size_t channel_scales_offset(int64_t rows, int64_t columns) {
  return (static_cast<size_t>(rows * columns) + kScaleAlignment - 1) / kScaleAlignment *
         kScaleAlignment;
}

size_t device_weight_bytes(WeightLayout layout, int64_t rows, int64_t columns) {
  if (layout == WeightLayout::kInt4Groups) return cuda::int4_packed_bytes(rows, columns);
  return channel_scales_offset(rows, columns) + static_cast<size_t>(rows) * sizeof(float);
}

int64_t device_tile_rows(WeightLayout layout) {
  return layout == WeightLayout::kInt4Groups ? cuda::kInt4TileRows : 1;
}

size_t device_tile_bytes(WeightLayout layout, int64_t columns) {
  if (layout == WeightLayout::kInt4Groups)
    return cuda::int4_packed_bytes(cuda::kInt4TileRows, columns);
  return static_cast<size_t>(columns);
}

bool quantize_tile(WeightLayout layout, int64_t columns, std::span<const float> values,
                   std::span<std::byte> out, float* scale) {
  check(out.size() == device_tile_bytes(layout, columns), "a tile has its own size");
  return layout == WeightLayout::kInt4Groups ? quantize_int4(columns, values, out)
                                             : quantize_channel(layout, values, out.data(), scale);
}

void dequantize_device_row(const WeightMatrix& w, int64_t row, float* out) {
  if (w.layout != WeightLayout::kInt4Groups) {
    float scale;
    std::memcpy(&scale,
                w.data + channel_scales_offset(w.rows, w.columns) +
                    static_cast<size_t>(row) * sizeof(float),
                sizeof(scale));
    const std::byte* codes = w.data + row * w.columns;
    for (int64_t i = 0; i < w.columns; ++i) {
      const auto code = static_cast<uint8_t>(codes[i]);
      out[i] = scale * (w.layout == WeightLayout::kFp8Channels
                            ? fp8_to_f32(code)
                            : static_cast<float>(static_cast<int8_t>(code)));
    }
    return;
  }
  const int64_t groups = w.columns / cuda::kInt4Group;
  const int in_tile = static_cast<int>(row % cuda::kInt4TileRows);
  for (int64_t group = 0; group < groups; ++group) {
    const std::byte* block =
        w.data +
        static_cast<size_t>(row / cuda::kInt4TileRows * groups + group) * cuda::kInt4BlockBytes;
    uint16_t scale;
    std::memcpy(&scale, block + 1024 + 2 * in_tile, sizeof(scale));
    for (int i = 0; i < cuda::kInt4Group; ++i) {
      const cuda::Int4Place at = cuda::int4_place(in_tile, i);
      uint32_t word;
      std::memcpy(&word, block + at.byte, sizeof(word));
      const auto code = static_cast<int>(word >> at.bit & 15);
      out[group * cuda::kInt4Group + i] = static_cast<float>(code - 8) * f16_to_f32(scale);
    }
  }
}

}  // namespace pelton::kernels
