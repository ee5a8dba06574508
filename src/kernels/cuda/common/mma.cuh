// Warp matrix instructions and the conversions that feed them.
//
// Fragments of m16n8k16, for lane = 4 * g + t: A holds rows g, g + 8; B column g; the accumulator
// rows g, g + 8 of columns 2t, 2t + 1. Which four of the sixteen k a lane holds is free as long as
// A and B agree, so kernels choose what makes 16-byte loads contiguous.
#pragma once

#include <cstdint>

namespace pelton::kernels::cuda {

// d += a * b on bf16 operands with FP32 accumulation.
__device__ __forceinline__ void mma_bf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                         uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// The same on fp16 operands.
__device__ __forceinline__ void mma_f16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                        uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

__device__ __forceinline__ uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// Low half `low`, high half `high`, rounded to nearest even.
__device__ __forceinline__ uint32_t pack_bf16x2(float low, float high) {
  uint32_t d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
__device__ __forceinline__ uint32_t pack_f16x2(float low, float high) {
  uint32_t d;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
__device__ __forceinline__ float low_bf16(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_bf16(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

// Four E4M3 bytes as fp16, exact: the low two and the high two.
__device__ __forceinline__ uint2 e4m3_as_f16(uint32_t word) {
  uint2 d;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(d.x), "=r"(d.y)
      : "r"(word));
  return d;
}

// Rows of bf16 go to fp16 without loss that counts: times the power of two that brings the largest
// magnitude to [2^14, 2^15). `highest` holds the bits of that magnitude.
__device__ __forceinline__ int f16_shift(uint32_t highest) {
  return min(141 - static_cast<int>(highest >> 7), 126);
}
__device__ __forceinline__ float two_to(int exponent) {  // in [-126, 127]
  return __int_as_float((127 + exponent) << 23);
}
// The larger magnitude of each half, as bits.
__device__ __forceinline__ uint32_t larger_bf16x2(uint32_t highest, uint32_t pair) {
  return __vmaxu2(highest, pair & 0x7fff7fffu);
}
__device__ __forceinline__ uint32_t scaled_f16x2(uint32_t bf16_pair, float scale) {
  return pack_f16x2(low_bf16(bf16_pair) * scale, high_bf16(bf16_pair) * scale);
}

// E4M3 bytes moved into bf16 fields: value * 2^-120, exact, subnormals included (NaN codes come out
// as 480). Bytes 0 and 2 of the word:
__device__ __forceinline__ uint32_t e4m3_even(uint32_t word) {
  return ((word << 8) & 0x80008000u) | ((word << 4) & 0x07f007f0u);
}
// Bytes 1 and 3:
__device__ __forceinline__ uint32_t e4m3_odd(uint32_t word) {
  return (word & 0x80008000u) | ((word >> 4) & 0x07f007f0u);
}
// 2^100 as a bf16 pair; 2^20 is what is left when an operand was scaled by 2^100.
inline constexpr uint32_t kTwoTo100 = 0x71807180u;
inline constexpr float kTwoTo20 = 1048576.0f;

// Int8 bytes as bf16, exact: low bits and sign are put into the mantissas of 128 and of 128 or 256,
// whose difference the number is. Bytes 0 and 2 of the word:
__device__ __forceinline__ uint32_t int8_even(uint32_t word) {
  uint32_t d;
  asm("sub.rn.bf16x2 %0, %1, %2;"
      : "=r"(d)
      : "r"((word & 0x007f007fu) | 0x43004300u), "r"((word & 0x00800080u) | 0x43004300u));
  return d;
}
// Bytes 1 and 3:
__device__ __forceinline__ uint32_t int8_odd(uint32_t word) { return int8_even(word >> 8); }

// 2^33: what is left of 4-bit codes (below) when the other operand was scaled by 2^100.
inline constexpr float kTwoTo33 = 8589934592.0f;

// 4-bit codes where they lie in a word, as bf16: exact, because a code is less than the mantissa
// and the last bit of the exponent together hold. Bits 0..3 and 16..19: code * 2^-133.
__device__ __forceinline__ uint32_t int4_low(uint32_t word) { return word & 0x000f000fu; }
// Bits 4..7 and 20..23: code * 2^-129.
__device__ __forceinline__ uint32_t int4_high(uint32_t word) { return word & 0x00f000f0u; }
// What the code 8, whose value is 0, looks like in either place.
inline constexpr uint32_t kInt4ZeroLow = 0x00080008u;
inline constexpr uint32_t kInt4ZeroHigh = 0x00800080u;
inline constexpr float kInt4HighShare = 0.0625f;  // brings sums of the second kind to the first's

// The transpose of an 8x8 matrix of 16-bit elements held as lane = 4 * row + column / 2.
__device__ __forceinline__ uint32_t transpose_8x8(uint32_t fragment) {
  uint32_t d;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(fragment));
  return d;
}

__device__ __forceinline__ uint4 load_shared_16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// Four 8x8 matrices of 16-bit elements, each a column-fragment register; lane l names row l % 8 of
// matrix l / 8.
__device__ __forceinline__ uint4 load_matrices(uint32_t row_address) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(row_address)
               : "memory");
  return v;
}

__device__ __forceinline__ uint2 load_shared_8(uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
  return v;
}

// Byte offset of 16-byte chunk `chunk` (0..7) of row `row` in a tile of 128-byte rows that the copy
// engine wrote with its 128-byte swizzle. Tiles begin on 1024-byte boundaries.
__device__ __forceinline__ uint32_t swizzled(int row, int chunk) {
  return static_cast<uint32_t>(row * 128 + ((chunk ^ (row & 7)) << 4));
}

}  // namespace pelton::kernels::cuda
