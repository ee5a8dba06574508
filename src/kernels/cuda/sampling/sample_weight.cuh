// The arithmetic that the CPU pipeline and this backend share bit for bit: operations are named, so
// that none is contracted.
#pragma once

#include <cstdint>

namespace pelton::kernels::cuda {

// e^x * 2^44 for x <= 0, rounded down.
__device__ __forceinline__ uint64_t fixed_weight(float x) {
  constexpr float kFloor = -87.0f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kOne = 17592186044416.0f;
  const float bounded = x > kFloor ? x : kFloor;
  const float shifted = __fadd_rn(__fmul_rn(bounded, 1.44269504088896341f), kRound);
  const float n = __fsub_rn(shifted, kRound);
  const float r =
      __fsub_rn(__fsub_rn(bounded, __fmul_rn(n, 0.693359375f)), __fmul_rn(n, -2.12194440e-4f));
  float p = 1.9875691500e-4f;
  p = __fadd_rn(__fmul_rn(p, r), 1.3981999507e-3f);
  p = __fadd_rn(__fmul_rn(p, r), 8.3334519073e-3f);
  p = __fadd_rn(__fmul_rn(p, r), 4.1665795894e-2f);
  p = __fadd_rn(__fmul_rn(p, r), 1.6666665459e-1f);
  p = __fadd_rn(__fmul_rn(p, r), 5.0000001201e-1f);
  const float y = __fadd_rn(__fadd_rn(__fmul_rn(p, __fmul_rn(r, r)), r), 1.0f);
  // The integer n lies in the low bits of `shifted`.
  const uint32_t power = (__float_as_uint(shifted) - __float_as_uint(kRound) + 127) << 23;
  const float value = __fmul_rn(y, __uint_as_float(power));
  return x < kFloor ? 0 : static_cast<uint64_t>(__float2ll_rz(__fmul_rn(value, kOne)));
}

// The least integer weight that is share `p` of `total`; 0 when that is all of it.
__device__ __forceinline__ uint64_t mass_target(uint64_t total, float p) {
  const double whole = __ull2double_rn(total);
  const double share = __dmul_rn(static_cast<double>(p), whole);
  if (!(share < whole)) return 0;
  const uint64_t target = __double2ull_rz(share);
  return target == 0 || __ull2double_rn(target) < share ? target + 1 : target;
}

// The number behind base/rng.h's uniform_random(seed, sequence, position).
__device__ __forceinline__ double uniform_draw(uint64_t seed, uint32_t sequence,
                                               uint32_t position) {
  uint32_t counter[4] = {position, sequence, 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
#pragma unroll 1
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    const uint32_t next0 = static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0];
    const uint32_t next2 = static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1];
    counter[0] = next0;
    counter[1] = static_cast<uint32_t>(p1);
    counter[2] = next2;
    counter[3] = static_cast<uint32_t>(p0);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const uint64_t word = (uint64_t{counter[0]} << 32) | counter[1];
  return __dmul_rn(__ull2double_rn(word >> 11), 0x1.0p-53);
}

// What of `total` lies before the token to be drawn.
__device__ __forceinline__ uint64_t draw_rest(uint64_t total, double uniform) {
  const uint64_t rest = __double2ull_rz(__dmul_rn(uniform, __ull2double_rn(total)));
  return rest < total ? rest : total - 1;
}

}  // namespace pelton::kernels::cuda
