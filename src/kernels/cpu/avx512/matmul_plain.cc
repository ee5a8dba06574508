// Products with F32, F16 and BF16 matrices in place, AVX-512.
//
// Weight and activation rows are read along K. An output is sixteen partial sums, lane k % 16,
// folded in one order at the end; kW x kM outputs are in flight at a time, so that a loaded vector
// is used several times. Bytes moved: the matrix once a call.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/levels.h"

namespace pelton::kernels::avx512 {

void fill_matmul_plain(MatmulKernels& kernels);

namespace {

constexpr int kLanes = 16;
using Vector = __m512;

inline Vector zero() { return _mm512_setzero_ps(); }
inline Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }

struct F32 {
  static constexpr int kBytes = 4;
  static __m512 load(const uint8_t* p) { return _mm512_loadu_ps(p); }
};
struct F16 {
  static constexpr int kBytes = 2;
  static __m512 load(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
};
struct BF16 {
  static constexpr int kBytes = 2;
  static __m512 load(const uint8_t* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
};

[[gnu::always_inline]] inline float fold(__m512 v) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
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

}  // namespace pelton::kernels::avx512
