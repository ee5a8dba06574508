// Vector primitives of the AVX-512 level (F, BW, CD, DQ, VL, VNNI, BF16). Internal linkage:
// included by this level's sources only. max(a, b) and min(a, b) return b where either is NaN.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace pelton::kernels::avx512 {
namespace {

struct Vec {
  __m512 v;
};
struct Mask {
  __mmask16 m;
};
constexpr int kLanes = 16;

[[gnu::always_inline]] inline Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
[[gnu::always_inline]] inline void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
[[gnu::always_inline]] inline Vec splat(float x) { return {_mm512_set1_ps(x)}; }
[[gnu::always_inline]] inline Vec broadcast(const float* p) { return {_mm512_set1_ps(*p)}; }
[[gnu::always_inline]] inline Vec zero() { return {_mm512_setzero_ps()}; }
// 0, 1, 2, ...
[[gnu::always_inline]] inline Vec iota() {
  return {_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}

[[gnu::always_inline]] inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
[[gnu::always_inline]] inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
[[gnu::always_inline]] inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
[[gnu::always_inline]] inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
// a * b + c and c - a * b, rounded once.
[[gnu::always_inline]] inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
[[gnu::always_inline]] inline Vec fnma(Vec a, Vec b, Vec c) {
  return {_mm512_fnmadd_ps(a.v, b.v, c.v)};
}
[[gnu::always_inline]] inline Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
[[gnu::always_inline]] inline Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
[[gnu::always_inline]] inline Vec abs(Vec a) { return {_mm512_abs_ps(a.v)}; }
// |magnitude| with the sign of `sign`.
[[gnu::always_inline]] inline Vec copy_sign(Vec magnitude, Vec sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return {_mm512_or_ps(_mm512_andnot_ps(bit, magnitude.v), _mm512_and_ps(bit, sign.v))};
}
[[gnu::always_inline]] inline Vec round_nearest(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// 2^n for whole n in [-126, 127].
[[gnu::always_inline]] inline Vec power_of_two(Vec n) {
  const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
}

[[gnu::always_inline]] inline Mask less(Vec a, Vec b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
[[gnu::always_inline]] inline Mask greater_equal(Vec a, Vec b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ)};
}
[[gnu::always_inline]] inline Mask operator&(Mask a, Mask b) {
  return {static_cast<__mmask16>(a.m & b.m)};
}
// mask ? a : b
[[gnu::always_inline]] inline Vec select(Mask mask, Vec a, Vec b) {
  return {_mm512_mask_blend_ps(mask.m, b.v, a.v)};
}
// Bit i is lane i.
[[gnu::always_inline]] inline uint32_t bits(Mask mask) { return mask.m; }

[[gnu::always_inline]] inline __mmask16 first_lanes(int n) {
  return static_cast<__mmask16>((1u << n) - 1u);
}
// The first n lanes, 0 <= n < kLanes; the others read as 0 and are not written.
[[gnu::always_inline]] inline Vec load_first(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
}
[[gnu::always_inline]] inline void store_first(float* p, Vec a, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), a.v);
}

[[gnu::always_inline]] inline float horizontal_sum(Vec a) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
[[gnu::always_inline]] inline float horizontal_max(Vec a) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

// Sums floats in double.
struct DoubleSum {
  __m512d low;
  __m512d high;
};
[[gnu::always_inline]] inline DoubleSum double_zero() {
  return {_mm512_setzero_pd(), _mm512_setzero_pd()};
}
[[gnu::always_inline]] inline void accumulate(DoubleSum& sum, Vec a) {
  sum.low = _mm512_add_pd(sum.low, _mm512_cvtps_pd(_mm512_castps512_ps256(a.v)));
  sum.high = _mm512_add_pd(sum.high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(a.v, 1)));
}
[[gnu::always_inline]] inline double total(const DoubleSum& sum) {
  double lanes[8];
  _mm512_storeu_pd(lanes, _mm512_add_pd(sum.low, sum.high));
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

// Rotates the kLanes / 2 pairs (x[2i], x[2i + 1]) by the angles with these cosines and sines.
[[gnu::always_inline]] inline Vec rotate_adjacent(Vec x, const float* cosines, const float* sines) {
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  const __m512 c = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(cosines)));
  const __m512 s = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(sines)));
  const __m512 swapped = _mm512_permute_ps(x.v, 0xB1);
  return {_mm512_fmaddsub_ps(x.v, c, _mm512_mul_ps(swapped, s))};
}

// kLanes values of a storage format, widened exactly.
[[gnu::always_inline]] inline Vec load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
[[gnu::always_inline]] inline Vec load_bf16(const uint16_t* p) {
  const __m512i wide =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
[[gnu::always_inline]] inline Vec load_i8(const int8_t* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
// E4M3 has f16's shape with a shorter exponent: shifted into place it reads as 2^-8 of its value,
// subnormals included. 0x7F and 0xFF are NaN.
[[gnu::always_inline]] inline Vec load_fp8(const uint8_t* p) {
  const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i magnitude = _mm256_and_si256(wide, _mm256_set1_epi16(0x7F));
  const __m256i sign = _mm256_slli_epi16(_mm256_andnot_si256(_mm256_set1_epi16(0x7F), wide), 8);
  const __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7F)),
                                       _mm256_set1_epi16(0x7C00));
  const __m256i half = _mm256_or_si256(_mm256_or_si256(sign, nan), _mm256_slli_epi16(magnitude, 7));
  return {_mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f))};
}
// Rounds to nearest even.
[[gnu::always_inline]] inline void store_f16(uint16_t* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

}  // namespace
}  // namespace pelton::kernels::avx512
