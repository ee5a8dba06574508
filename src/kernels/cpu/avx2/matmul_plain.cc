// Products with F32, F16 and BF16 matrices in place, AVX2.
//
// Weight and activation rows are read along K. An output is eight partial sums, lane k % 8, folded
// in one order at the end; kW x kM outputs are in flight at a time, so that a loaded vector is used
// several times. Bytes moved: the matrix once a call.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/levels.h"

namespace pelton::kernels::avx2 {

void fill_matmul_plain(MatmulKernels& kernels);

namespace {

constexpr int kLanes = 8;
using Vector = __m256;

inline Vector zero() { return _mm256_setzero_ps(); }
inline Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }

struct F32 {
  static constexpr int kBytes = 4;
  static __m256 load(const uint8_t* p) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  }
};
struct F16 {
  static constexpr int kBytes = 2;
  static __m256 load(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};
struct BF16 {
  static constexpr int kBytes = 2;
  static __m256 load(const uint8_t* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
};

[[gnu::always_inline]] inline float fold(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 0x55)));
}

#include "kernels/cpu/shared/matmul_plain.inl"

}  // namespace

void fill_matmul_plain(MatmulKernels& kernels) {
  kernels.exact[static_cast<int>(WeightFormat::kF32)] = product<F32>;
  kernels.exact[static_cast<int>(WeightFormat::kF16)] = product<F16>;
  kernels.exact[static_cast<int>(WeightFormat::kBF16)] = product<BF16>;
}

}  // namespace pelton::kernels::avx2
