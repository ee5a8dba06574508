#include "kernels/ref/quant_blocks.h"

#include <bit>
#include <cstring>

#include "base/check.h"

namespace pelton::kernels::ref {

const int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
const int8_t kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

float mxfp4_scale(uint8_t exponent) {
  if (exponent < 2) return std::bit_cast<float>(0x00200000u << exponent);  // subnormal
  return std::bit_cast<float>((exponent - 1u) << 23);
}

void unpack_scales_minima(const uint8_t* packed, uint8_t* scales, uint8_t* minima) {
  for (int i = 0; i < 4; ++i) {
    scales[i] = packed[i] & 63;
    minima[i] = packed[i + 4] & 63;
    scales[i + 4] = static_cast<uint8_t>((packed[i + 8] & 0xF) | (packed[i] >> 6) << 4);
    minima[i + 4] = static_cast<uint8_t>(packed[i + 8] >> 4 | (packed[i + 4] >> 6) << 4);
  }
}

void unpack_scales_q3(const uint8_t* packed, uint8_t* scales) {
  for (int i = 0; i < 16; ++i) {
    const int low = i < 8 ? packed[i] & 0xF : packed[i - 8] >> 4;
    const int high = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
    scales[i] = static_cast<uint8_t>(low | high << 4);
  }
}

namespace {

using enum WeightFormat;

float read_f16(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return f16_to_f32(bits);
}

uint32_t read_u32(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

// Code i of a 32-element block whose byte j holds elements j (low nibble) and j + 16.
int nibble(const uint8_t* bytes, int i) { return i < 16 ? bytes[i] & 0xF : bytes[i - 16] >> 4; }

void decode_q4_0(const uint8_t* b, float* y) {
  const float d = read_f16(b);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(nibble(b + 2, i) - 8);
}

void decode_q4_1(const uint8_t* b, float* y) {
  const float d = read_f16(b);
  const float m = read_f16(b + 2);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(nibble(b + 4, i)) + m;
}

void decode_q5_0(const uint8_t* b, float* y) {
  const float d = read_f16(b);
  const uint32_t high = read_u32(b + 2);
  for (int i = 0; i < 32; ++i) {
    const int code = nibble(b + 6, i) | static_cast<int>(high >> i & 1u) << 4;
    y[i] = d * static_cast<float>(code - 16);
  }
}

void decode_q5_1(const uint8_t* b, float* y) {
  const float d = read_f16(b);
  const float m = read_f16(b + 2);
  const uint32_t high = read_u32(b + 4);
  for (int i = 0; i < 32; ++i) {
    const int code = nibble(b + 8, i) | static_cast<int>(high >> i & 1u) << 4;
    y[i] = d * static_cast<float>(code) + m;
  }
}

void decode_q8_0(const uint8_t* b, float* y) {
  const float d = read_f16(b);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(static_cast<int8_t>(b[2 + i]));
}

void decode_q2_k(const uint8_t* b, float* y) {
  const uint8_t* scales = b;
  const uint8_t* codes = b + 16;
  const float d = read_f16(b + 80);
  const float dmin = read_f16(b + 82);
  for (int i = 0; i < 256; ++i) {
    const int code = codes[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3;
    const uint8_t scale = scales[i / 16];
    y[i] = d * static_cast<float>(scale & 0xF) * static_cast<float>(code) -
           dmin * static_cast<float>(scale >> 4);
  }
}

void decode_q3_k(const uint8_t* b, float* y) {
  const uint8_t* high = b;
  const uint8_t* codes = b + 32;
  uint8_t scales[16];
  unpack_scales_q3(b + 96, scales);
  const float d = read_f16(b + 108);
  for (int i = 0; i < 256; ++i) {
    const int low = codes[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3;
    const int code = low + (high[i % 32] >> (i / 32) & 1) * 4;
    y[i] = d * static_cast<float>(scales[i / 16] - 32) * static_cast<float>(code - 4);
  }
}

// Nibble i of a 256-element block in which 32 bytes hold elements 0..31 (low) and 32..63 of each
// 64.
int nibble_k(const uint8_t* bytes, int i) {
  const uint8_t byte = bytes[i / 64 * 32 + i % 32];
  return i % 64 < 32 ? byte & 0xF : byte >> 4;
}

void decode_q4_k(const uint8_t* b, float* y) {
  const float d = read_f16(b);
  const float dmin = read_f16(b + 2);
  uint8_t scales[8], minima[8];
  unpack_scales_minima(b + 4, scales, minima);
  for (int i = 0; i < 256; ++i) {
    y[i] = d * static_cast<float>(scales[i / 32]) * static_cast<float>(nibble_k(b + 16, i)) -
           dmin * static_cast<float>(minima[i / 32]);
  }
}

void decode_q5_k(const uint8_t* b, float* y) {
  const float d = read_f16(b);
  const float dmin = read_f16(b + 2);
  uint8_t scales[8], minima[8];
  unpack_scales_minima(b + 4, scales, minima);
  for (int i = 0; i < 256; ++i) {
    const int code = nibble_k(b + 48, i) | (b[16 + i % 32] >> (i / 32) & 1) << 4;
    y[i] = d * static_cast<float>(scales[i / 32]) * static_cast<float>(code) -
           dmin * static_cast<float>(minima[i / 32]);
  }
}

void decode_q6_k(const uint8_t* b, float* y) {
  const uint8_t* low = b;
  const uint8_t* high = b + 128;
  const uint8_t* scales = b + 192;
  const float d = read_f16(b + 208);
  for (int i = 0; i < 256; ++i) {
    const int part = i / 128;
    const int quarter = i % 128 / 32;
    const uint8_t byte = low[part * 64 + (quarter % 2) * 32 + i % 32];
    const int nib = quarter < 2 ? byte & 0xF : byte >> 4;
    const int code = nib | (high[part * 32 + i % 32] >> (2 * quarter) & 3) << 4;
    y[i] =
        d * static_cast<float>(static_cast<int8_t>(scales[i / 16])) * static_cast<float>(code - 32);
  }
}

void decode_iq4_nl(const uint8_t* b, float* y) {
  const float d = read_f16(b);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(kIq4Values[nibble(b + 2, i)]);
}

void decode_iq4_xs(const uint8_t* b, float* y) {
  const float d = read_f16(b);
  const unsigned high = b[2] | static_cast<unsigned>(b[3]) << 8;
  for (int block = 0; block < 8; ++block) {
    const int low = b[4 + block / 2] >> (4 * (block % 2)) & 0xF;
    const int scale = (low | static_cast<int>(high >> (2 * block) & 3u) << 4) - 32;
    for (int i = 0; i < 32; ++i) {
      y[block * 32 + i] = d * static_cast<float>(scale) *
                          static_cast<float>(kIq4Values[nibble(b + 8 + block * 16, i)]);
    }
  }
}

void decode_mxfp4(const uint8_t* b, float* y) {
  const float d = mxfp4_scale(b[0]);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(kFp4Values[nibble(b + 1, i)]);
}

void decode_block(WeightFormat format, const uint8_t* b, float* y) {
  switch (format) {
    case kF32:
      std::memcpy(y, b, sizeof(float));
      return;
    case kF16:
      *y = read_f16(b);
      return;
    case kBF16:
      *y = bf16_to_f32(static_cast<uint16_t>(b[0] | b[1] << 8));
      return;
    case kQ4_0:
      return decode_q4_0(b, y);
    case kQ4_1:
      return decode_q4_1(b, y);
    case kQ5_0:
      return decode_q5_0(b, y);
    case kQ5_1:
      return decode_q5_1(b, y);
    case kQ8_0:
      return decode_q8_0(b, y);
    case kQ2_K:
      return decode_q2_k(b, y);
    case kQ3_K:
      return decode_q3_k(b, y);
    case kQ4_K:
      return decode_q4_k(b, y);
    case kQ5_K:
      return decode_q5_k(b, y);
    case kQ6_K:
      return decode_q6_k(b, y);
    case kIQ4_NL:
      return decode_iq4_nl(b, y);
    case kIQ4_XS:
      return decode_iq4_xs(b, y);
    case kMXFP4:
      return decode_mxfp4(b, y);
    case kCount:
      break;
  }
  check(false, "unknown weight format");
}

}  // namespace

void dequantize(WeightFormat format, const std::byte* source, int64_t elements, float* out) {
  const WeightFormatInfo& info = weight_format_info(format);
  check(elements % info.block_elements == 0, "elements are not whole blocks");
  const auto* bytes = reinterpret_cast<const uint8_t*>(source);
  for (int64_t i = 0; i < elements; i += info.block_elements) {
    decode_block(format, bytes, out + i);
    bytes += info.block_bytes;
  }
}

}  // namespace pelton::kernels::ref
