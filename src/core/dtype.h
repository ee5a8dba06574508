// Element types of activations, KV pages and plain weights, and the descriptors of block-quantized
// weight formats.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace pelton {

enum class DType : uint8_t { kF32, kF16, kBF16, kF8E4M3, kI8, kI32, kU8 };
const char* dtype_name(DType dtype);  // "f32", "f16", "bf16", "fp8", "int8", ...
int dtype_bytes(DType dtype);

// Storage format of a weight tensor. The order is that of the descriptor table; GGUF's numbers are
// mapped by the reader.
enum class WeightFormat : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kCount,
};

// How a format stores its values. One row of a weight matrix is a whole number of blocks.
struct WeightFormatInfo {
  WeightFormat format;
  const char* name;    // as GGUF tools print it: "Q4_K"
  int block_elements;  // 1 for plain types
  int block_bytes;
  int group_elements;  // elements that share one scale (32 in Q4_0, 16 in Q6_K); 0 for plain types
  int code_bits;       // bits of one stored code; 16 or 32 for plain types
  bool has_minimum;    // value = scale * code - minimum (Q4_1, Q5_1, Q2_K, Q4_K, Q5_K)
  bool is_codebook;    // codes index a table of values (IQ4_NL, IQ4_XS, MXFP4)
};

std::span<const WeightFormatInfo> weight_formats();
const WeightFormatInfo& weight_format_info(WeightFormat format);
const char* weight_format_name(WeightFormat format);
// Case-insensitive; absent when unknown.
std::optional<WeightFormat> parse_weight_format(std::string_view name);
// Bytes of `elements` values in this format; absent when they do not fill whole blocks or overflow.
std::optional<uint64_t> weight_bytes(WeightFormat format, uint64_t elements);

// Scalar conversions, round to nearest even; NaN stays NaN. fp8 is E4M3 without infinities,
// saturating at +-448.
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);
float fp8_to_f32(uint8_t bits);
uint8_t f32_to_fp8(float value);

}  // namespace pelton
