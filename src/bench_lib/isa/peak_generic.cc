#include <array>

#include "bench_lib/isa/peak.h"

namespace pelton::bench_lib {

// 16-bit products summed in pairs, which compilers turn into the baseline's one such instruction.
int64_t int8_peak_generic(int64_t iterations, int32_t* sink) {
  constexpr int kWidth = 8;
  constexpr int kChains = 4;
  std::array<int16_t, kWidth> a;
  std::array<std::array<int16_t, kWidth>, kChains> b;
  for (size_t i = 0; i < kWidth; ++i) {
    a[i] = static_cast<int16_t>((*sink + static_cast<int32_t>(i)) & 127);
    for (size_t chain = 0; chain < kChains; ++chain) {
      b[chain][i] = static_cast<int16_t>((*sink + static_cast<int32_t>(i * chain)) & 127);
    }
  }
  std::array<int32_t, kChains * kWidth / 2> sums{};
  for (int64_t n = 0; n < iterations; ++n) {
    for (size_t chain = 0; chain < kChains; ++chain) {
      for (size_t i = 0; i < kWidth / 2; ++i) {
        sums[chain * (kWidth / 2) + i] ^=
            a[2 * i] * b[chain][2 * i] + a[2 * i + 1] * b[chain][2 * i + 1];
      }
    }
    for (int16_t& value : a) value = static_cast<int16_t>((value + 1) & 127);
  }
  int32_t sum = 0;
  for (const int32_t value : sums) sum ^= value;
  *sink = sum;
  return iterations * kChains * kWidth;
}

}  // namespace pelton::bench_lib
