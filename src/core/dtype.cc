#include "core/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/checked.h"

namespace pelton {
namespace {

using enum WeightFormat;

//                                          format  name     block bytes group bits  min    codebook
constexpr std::array<WeightFormatInfo, static_cast<size_t>(kCount)> kFormats = {{
    {kF32, "F32", 1, 4, 0, 32, false, false},
    {kF16, "F16", 1, 2, 0, 16, false, false},
    {kBF16, "BF16", 1, 2, 0, 16, false, false},
    {kQ4_0, "Q4_0", 32, 18, 32, 4, false, false},
    {kQ4_1, "Q4_1", 32, 20, 32, 4, true, false},
    {kQ5_0, "Q5_0", 32, 22, 32, 5, false, false},
    {kQ5_1, "Q5_1", 32, 24, 32, 5, true, false},
    {kQ8_0, "Q8_0", 32, 34, 32, 8, false, false},
    {kQ2_K, "Q2_K", 256, 84, 16, 2, true, false},
    {kQ3_K, "Q3_K", 256, 110, 16, 3, false, false},
    {kQ4_K, "Q4_K", 256, 144, 32, 4, true, false},
    {kQ5_K, "Q5_K", 256, 176, 32, 5, true, false},
    {kQ6_K, "Q6_K", 256, 210, 16, 6, false, false},
    {kIQ4_NL, "IQ4_NL", 32, 18, 32, 4, false, true},
    {kIQ4_XS, "IQ4_XS", 256, 136, 32, 4, false, true},
    {kMXFP4, "MXFP4", 32, 17, 32, 4, false, true},
}};

constexpr bool table_is_in_enum_order() {
  for (size_t i = 0; i < kFormats.size(); ++i) {
    if (static_cast<size_t>(kFormats[i].format) != i) return false;
  }
  return true;
}
static_assert(table_is_in_enum_order());

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  const auto lower = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  for (size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

}  // namespace

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kF8E4M3:
      return "fp8";
    case DType::kI8:
      return "int8";
    case DType::kI32:
      return "int32";
    case DType::kU8:
      return "uint8";
  }
  return "unknown";
}

int dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kF8E4M3:
    case DType::kI8:
    case DType::kU8:
      return 1;
  }
  check(false, "unknown dtype");
  return 0;
}

std::span<const WeightFormatInfo> weight_formats() { return kFormats; }

const WeightFormatInfo& weight_format_info(WeightFormat format) {
  check(format < kCount, "unknown weight format");
  return kFormats[static_cast<size_t>(format)];
}

const char* weight_format_name(WeightFormat format) { return weight_format_info(format).name; }

std::optional<WeightFormat> parse_weight_format(std::string_view name) {
  for (const WeightFormatInfo& info : kFormats) {
    if (equal_ignoring_case(name, info.name)) return info.format;
  }
  return std::nullopt;
}

std::optional<uint64_t> weight_bytes(WeightFormat format, uint64_t elements) {
  const WeightFormatInfo& info = weight_format_info(format);
  const auto block = static_cast<uint64_t>(info.block_elements);
  if (elements % block != 0) return std::nullopt;
  return checked_mul(elements / block, static_cast<uint64_t>(info.block_bytes));
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u)
    return static_cast<uint16_t>(sign | 0x7C00u);  // rounds beyond 65504
  if (magnitude < 0x38800000u) {
    // Subnormal: adding 0.5 aligns the value's unit with 2^-24 and rounds to nearest even in the
    // float adder.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

float fp8_to_f32(uint8_t bits) {
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  const int exponent = bits >> 3 & 0xF;
  const int mantissa = bits & 0x7;
  if (exponent == 0xF && mantissa == 0x7) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -9);
  return sign * std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
}

uint8_t f32_to_fp8(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint8_t>(sign | 0x7Fu);
  if (magnitude >= 0x43E00000u) return static_cast<uint8_t>(sign | 0x7Eu);  // 448 and beyond
  if (magnitude < 0x3C800000u) {
    // Subnormal: adding 2^14 aligns the value's unit with 2^-9 and rounds to nearest even in the
    // float adder.
    const float aligned = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x46800000u));
  }
  const uint32_t rounded = magnitude + 0x7FFFFu + (magnitude >> 20 & 1u);
  return static_cast<uint8_t>(sign | (rounded - 0x3C000000u) >> 20);
}

}  // namespace pelton
