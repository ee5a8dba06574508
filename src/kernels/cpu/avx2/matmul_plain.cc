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

[[gnu::always_inline]] inline void store_output(const ProductArgs& args, int64_t row, int64_t n,
                                                float value) {
  float* out = args.out + row * args.out_stride + n;
  if (args.bias != nullptr) value += args.bias[n];
  *out = args.accumulate ? *out + value : value;
}

// The last k % 8 elements of a row, the other lanes zero.
template <class W>
[[gnu::always_inline]] inline __m256 load_tail(const uint8_t* p, int64_t count) {
  alignas(32) uint8_t padded[kLanes * sizeof(float)] = {};
  std::memcpy(padded, p, static_cast<size_t>(count) * W::kBytes);
  return W::load(padded);
}

// kW weight rows from n against kM activation rows from m.
template <class W, int kW, int kM>
void outputs(const ProductArgs& args, int64_t n, int64_t m) {
  const uint8_t* w[kW];
  const float* x[kM];
  for (int i = 0; i < kW; ++i) w[i] = args.low + (n + i) * args.k * W::kBytes;
  for (int j = 0; j < kM; ++j) x[j] = args.x + (m + j) * args.x_stride;
  __m256 acc[kW][kM];
  for (auto& row : acc) {
    for (__m256& v : row) v = _mm256_setzero_ps();
  }
  int64_t k = 0;
  for (; k + kLanes <= args.k; k += kLanes) {
    __m256 a[kM];
#pragma GCC unroll 4
    for (int j = 0; j < kM; ++j) a[j] = _mm256_loadu_ps(x[j] + k);
#pragma GCC unroll 8
    for (int i = 0; i < kW; ++i) {
      const __m256 b = W::load(w[i] + k * W::kBytes);
#pragma GCC unroll 4
      for (int j = 0; j < kM; ++j) acc[i][j] = _mm256_fmadd_ps(b, a[j], acc[i][j]);
    }
  }
  if (k < args.k) {
    for (int i = 0; i < kW; ++i) {
      const __m256 b = load_tail<W>(w[i] + k * W::kBytes, args.k - k);
      for (int j = 0; j < kM; ++j) {
        const __m256 a = load_tail<F32>(reinterpret_cast<const uint8_t*>(x[j] + k), args.k - k);
        acc[i][j] = _mm256_fmadd_ps(b, a, acc[i][j]);
      }
    }
  }
  for (int i = 0; i < kW; ++i) {
    for (int j = 0; j < kM; ++j) store_output(args, m + j, n + i, fold(acc[i][j]));
  }
}

template <class W, int kW>
void weight_rows(const ProductArgs& args, int64_t n) {
  int64_t m = 0;
  for (; m + 3 <= args.rows; m += 3) outputs<W, kW, 3>(args, n, m);
  if (args.rows - m == 2) outputs<W, kW, 2>(args, n, m);
  if (args.rows - m == 1) outputs<W, kW, 1>(args, n, m);
}

template <class W>
void product(const ProductArgs& args) {
  const int64_t last = args.last_tile * kTileRows < args.n ? args.last_tile * kTileRows : args.n;
  int64_t n = args.first_tile * kTileRows;
  if (args.rows == 1) {
    for (; n + 8 <= last; n += 8) outputs<W, 8, 1>(args, n, 0);
  }
  for (; n + 4 <= last; n += 4) weight_rows<W, 4>(args, n);
  for (; n < last; ++n) weight_rows<W, 1>(args, n);
}

}  // namespace

void fill_matmul_plain(MatmulKernels& kernels) {
  kernels.exact[static_cast<int>(WeightFormat::kF32)] = product<F32>;
  kernels.exact[static_cast<int>(WeightFormat::kF16)] = product<F16>;
  kernels.exact[static_cast<int>(WeightFormat::kBF16)] = product<BF16>;
}

}  // namespace pelton::kernels::avx2
