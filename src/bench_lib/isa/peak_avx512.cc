#include <immintrin.h>

#include "bench_lib/isa/peak.h"

namespace pelton::bench_lib {

// VPDPBUSD, 64 byte products an instruction; sixteen chains cover the latency.
int64_t int8_peak_avx512(int64_t iterations, int32_t* sink) {
  constexpr int kChains = 16;
  constexpr int kBytes = 64;
  __m512i sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_epi32(i + *sink);
  const __m512i a = _mm512_set1_epi8(static_cast<char>(*sink | 1));
  const __m512i b = _mm512_set1_epi8(static_cast<char>(*sink | 3));
  for (int64_t n = 0; n < iterations; ++n) {
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
  }
  __m512i sum = _mm512_setzero_si512();
  for (int i = 0; i < kChains; ++i) sum = _mm512_add_epi32(sum, sums[i]);
  // Through memory: the extracting intrinsics of g++ 12 warn of an uninitialised value.
  int32_t lanes[16];
  _mm512_storeu_si512(lanes, sum);
  *sink = lanes[0];
  return iterations * kChains * kBytes;
}

}  // namespace pelton::bench_lib
