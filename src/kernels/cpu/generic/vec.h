// Vector primitives of the generic level: four lanes of plain C++ that any compiler turns into what
// its baseline has. Internal linkage: included by this level's sources only. No fused
// multiply-add. max(a, b) and min(a, b) return b where either is NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "core/dtype.h"

namespace pelton::kernels::generic {
namespace {

constexpr int kLanes = 4;
struct Vec {
  float v[kLanes];
};
struct Mask {
  bool m[kLanes];
};

template <typename F>
[[gnu::always_inline]] inline Vec each_lane(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}

[[gnu::always_inline]] inline Vec load(const float* p) {
  return each_lane([&](int i) { return p[i]; });
}
[[gnu::always_inline]] inline void store(float* p, Vec a) {
  for (int i = 0; i < kLanes; ++i) p[i] = a.v[i];
}
[[gnu::always_inline]] inline Vec splat(float x) { return {{x, x, x, x}}; }
[[gnu::always_inline]] inline Vec broadcast(const float* p) { return splat(*p); }
[[gnu::always_inline]] inline Vec zero() { return splat(0.0f); }
// 0, 1, 2, ...
[[gnu::always_inline]] inline Vec iota() { return {{0.0f, 1.0f, 2.0f, 3.0f}}; }

[[gnu::always_inline]] inline Vec operator+(Vec a, Vec b) {
  return each_lane([&](int i) { return a.v[i] + b.v[i]; });
}
[[gnu::always_inline]] inline Vec operator-(Vec a, Vec b) {
  return each_lane([&](int i) { return a.v[i] - b.v[i]; });
}
[[gnu::always_inline]] inline Vec operator*(Vec a, Vec b) {
  return each_lane([&](int i) { return a.v[i] * b.v[i]; });
}
[[gnu::always_inline]] inline Vec operator/(Vec a, Vec b) {
  return each_lane([&](int i) { return a.v[i] / b.v[i]; });
}
// a * b + c and c - a * b.
[[gnu::always_inline]] inline Vec fma(Vec a, Vec b, Vec c) {
  return each_lane([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
[[gnu::always_inline]] inline Vec fnma(Vec a, Vec b, Vec c) {
  return each_lane([&](int i) { return c.v[i] - a.v[i] * b.v[i]; });
}
[[gnu::always_inline]] inline Vec max(Vec a, Vec b) {
  return each_lane([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
[[gnu::always_inline]] inline Vec min(Vec a, Vec b) {
  return each_lane([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
[[gnu::always_inline]] inline Vec abs(Vec a) {
  return each_lane([&](int i) { return __builtin_fabsf(a.v[i]); });
}
// |magnitude| with the sign of `sign`.
[[gnu::always_inline]] inline Vec copy_sign(Vec magnitude, Vec sign) {
  return each_lane([&](int i) { return __builtin_copysignf(magnitude.v[i], sign.v[i]); });
}
// For magnitudes below 2^22: adding 1.5 * 2^23 leaves no bits below one.
[[gnu::always_inline]] inline Vec round_nearest(Vec a) {
  return each_lane([&](int i) { return (a.v[i] + 12582912.0f) - 12582912.0f; });
}
// 2^n for whole n in [-126, 127]; anything for NaN.
[[gnu::always_inline]] inline Vec power_of_two(Vec n) {
  return each_lane([&](int i) {
    const uint32_t shifted = std::bit_cast<uint32_t>(n.v[i] + 12583039.0f);  // low bits: n + 127
    return std::bit_cast<float>((shifted & 0xFFu) << 23);
  });
}

[[gnu::always_inline]] inline Mask less(Vec a, Vec b) {
  Mask mask;
  for (int i = 0; i < kLanes; ++i) mask.m[i] = a.v[i] < b.v[i];
  return mask;
}
[[gnu::always_inline]] inline Mask greater_equal(Vec a, Vec b) {
  Mask mask;
  for (int i = 0; i < kLanes; ++i) mask.m[i] = a.v[i] >= b.v[i];
  return mask;
}
[[gnu::always_inline]] inline Mask operator&(Mask a, Mask b) {
  for (int i = 0; i < kLanes; ++i) a.m[i] = a.m[i] && b.m[i];
  return a;
}
// mask ? a : b
[[gnu::always_inline]] inline Vec select(Mask mask, Vec a, Vec b) {
  return each_lane([&](int i) { return mask.m[i] ? a.v[i] : b.v[i]; });
}
// Bit i is lane i.
[[gnu::always_inline]] inline uint32_t bits(Mask mask) {
  uint32_t b = 0;
  for (int i = 0; i < kLanes; ++i) b |= uint32_t{mask.m[i]} << i;
  return b;
}

// The first n lanes, 0 <= n < kLanes; the others read as 0 and are not written.
[[gnu::always_inline]] inline Vec load_first(const float* p, int n) {
  return each_lane([&](int i) { return i < n ? p[i] : 0.0f; });
}
[[gnu::always_inline]] inline void store_first(float* p, Vec a, int n) {
  for (int i = 0; i < n; ++i) p[i] = a.v[i];
}

[[gnu::always_inline]] inline float horizontal_sum(Vec a) {
  return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]);
}
[[gnu::always_inline]] inline float horizontal_max(Vec a) {
  const float x = a.v[0] > a.v[2] ? a.v[0] : a.v[2];
  const float y = a.v[1] > a.v[3] ? a.v[1] : a.v[3];
  return x > y ? x : y;
}

// Sums floats in double.
struct DoubleSum {
  double v[kLanes];
};
[[gnu::always_inline]] inline DoubleSum double_zero() { return {{0, 0, 0, 0}}; }
[[gnu::always_inline]] inline void accumulate(DoubleSum& sum, Vec a) {
  for (int i = 0; i < kLanes; ++i) sum.v[i] += static_cast<double>(a.v[i]);
}
[[gnu::always_inline]] inline double total(const DoubleSum& sum) {
  return (sum.v[0] + sum.v[2]) + (sum.v[1] + sum.v[3]);
}

// Rotates the kLanes / 2 pairs (x[2i], x[2i + 1]) by the angles with these cosines and sines.
[[gnu::always_inline]] inline Vec rotate_adjacent(Vec x, const float* cosines, const float* sines) {
  Vec out;
  for (int i = 0; i < kLanes; i += 2) {
    const float c = cosines[i / 2];
    const float s = sines[i / 2];
    out.v[i] = x.v[i] * c - x.v[i + 1] * s;
    out.v[i + 1] = x.v[i + 1] * c + x.v[i] * s;
  }
  return out;
}

// kLanes values of a storage format, widened exactly.
[[gnu::always_inline]] inline float widen_f16(uint32_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t shifted = (half & 0x7FFFu) << 13;
  if ((half & 0x7C00u) == 0x7C00u) return std::bit_cast<float>(sign | 0x7F800000u | shifted);
  return std::bit_cast<float>(sign |
                              std::bit_cast<uint32_t>(std::bit_cast<float>(shifted) * 0x1.0p112f));
}
[[gnu::always_inline]] inline Vec load_f16(const uint16_t* p) {
  return each_lane([&](int i) { return widen_f16(p[i]); });
}
[[gnu::always_inline]] inline Vec load_bf16(const uint16_t* p) {
  return each_lane([&](int i) { return std::bit_cast<float>(uint32_t{p[i]} << 16); });
}
[[gnu::always_inline]] inline Vec load_i8(const int8_t* p) {
  return each_lane([&](int i) { return static_cast<float>(p[i]); });
}
// E4M3 has f16's shape with a shorter exponent: shifted into place it reads as 2^-8 of its value,
// subnormals included. 0x7F and 0xFF are NaN.
[[gnu::always_inline]] inline Vec load_fp8(const uint8_t* p) {
  return each_lane([&](int i) {
    const uint32_t magnitude = p[i] & 0x7Fu;
    const uint32_t nan = magnitude == 0x7F ? 0x7C00u : 0u;
    return widen_f16((p[i] & 0x80u) << 8 | nan | magnitude << 7) * 256.0f;
  });
}
// Rounds to nearest even.
[[gnu::always_inline]] inline void store_f16(uint16_t* p, Vec a) {
  for (int i = 0; i < kLanes; ++i) p[i] = f32_to_f16(a.v[i]);
}

}  // namespace
}  // namespace pelton::kernels::generic
