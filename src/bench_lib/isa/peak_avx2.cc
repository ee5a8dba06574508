#include <immintrin.h>

#include "bench_lib/isa/peak.h"

namespace pelton::bench_lib {

// Pairs of byte products summed to 16 bits and accumulated there: the fewest instructions that any
// byte product can take without dot-product instructions. Fourteen chains cover the latency.
int64_t int8_peak_avx2(int64_t iterations, int32_t* sink) {
  constexpr int kChains = 14;
  constexpr int kBytes = 32;
  __m256i sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_epi8(static_cast<char>(i + *sink));
  const __m256i b = _mm256_set1_epi8(static_cast<char>(*sink | 1));
  for (int64_t n = 0; n < iterations; ++n) {
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm256_add_epi16(sums[i], _mm256_maddubs_epi16(sums[i], b));
    }
  }
  __m256i sum = _mm256_setzero_si256();
  for (int i = 0; i < kChains; ++i) sum = _mm256_add_epi32(sum, sums[i]);
  *sink = _mm256_extract_epi32(sum, 0);
  return iterations * kChains * kBytes;
}

}  // namespace pelton::bench_lib
