// Products of float activations with packed weights, AVX2: a block of eight weight rows is
// dequantized to the very values that dequantize_row gives, then met by every activation row.
// An output is four partial sums, by k % 4, in block order.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/levels.h"

namespace pelton::kernels::avx2 {

void fill_matmul_exact(MatmulKernels& kernels);

namespace {

#include "kernels/cpu/avx2/matmul_isa.inl"
#include "kernels/cpu/shared/matmul_formats.inl"

constexpr int kChains = 4;

// values[k]: column k of the eight rows.
template <class F>
[[gnu::always_inline]] inline void dequantize_block(const uint8_t* low, const uint8_t* high,
                                                    const uint8_t* record, int group, int i,
                                                    __m256* values) {
  __m256i w[8];
  F::codes(low + 32 * group, high + 32 * group, w);
  Scales<Isa> scales[2];
  scales[0] = float_scales<Isa, F>(record, group, i, 0);
  scales[1] = F::kDot == Dot::kHalves ? float_scales<Isa, F>(record, group, i, 1) : scales[0];
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    const Scales<Isa>& s = scales[g / 4];
#pragma GCC unroll 4
    for (int j = 0; j < kChains; ++j) {
      __m256i code;
      if constexpr (F::kDot == Dot::kSigned) {
        code = _mm256_srai_epi32(_mm256_slli_epi32(w[g], 24 - 8 * j), 24);
      } else {
        code = _mm256_and_si256(_mm256_srli_epi32(w[g], 8 * j), _mm256_set1_epi32(0xFF));
        if constexpr (F::kOffset != 0) {
          code = _mm256_sub_epi32(code, _mm256_set1_epi32(F::kOffset));
        }
      }
      // The product is exact where a minimum follows, so fusing rounds as two steps would.
      const __m256 value = _mm256_cvtepi32_ps(code);
      if constexpr (F::kMinimum) {
        values[4 * g + j] = _mm256_fmadd_ps(value, s.scale, s.addend);
      } else {
        values[4 * g + j] = _mm256_mul_ps(value, s.scale);
      }
    }
  }
}

// kM rows from `x` on, their chains at `acc` [row][chain].
template <int kM>
[[gnu::always_inline]] inline void add_rows(const __m256* values, const float* x, int64_t x_stride,
                                            __m256* acc) {
  __m256 sums[kM][kChains];
  for (int m = 0; m < kM; ++m) {
    for (int j = 0; j < kChains; ++j) sums[m][j] = acc[m * kChains + j];
  }
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
#pragma GCC unroll 4
    for (int j = 0; j < kChains; ++j) {
#pragma GCC unroll 2
      for (int m = 0; m < kM; ++m) {
        sums[m][j] = _mm256_fmadd_ps(values[4 * g + j],
                                     _mm256_broadcast_ss(x + m * x_stride + 4 * g + j), sums[m][j]);
      }
    }
  }
  for (int m = 0; m < kM; ++m) {
    for (int j = 0; j < kChains; ++j) acc[m * kChains + j] = sums[m][j];
  }
}

template <WeightFormat kFormat>
void row_group(const ProductArgs& args, int64_t tile, int group) {
  using F = Format<Isa, kFormat>;
  constexpr PackedGeometry kGeometry = packed_geometry(kFormat);
  const int64_t blocks = args.k / kBlockColumns;
  const int64_t index = tile * blocks;
  const uint8_t* low = args.low + index * kGeometry.low;
  const uint8_t* high = args.high + index * kGeometry.high;
  const uint8_t* record = args.scales + index / kGeometry.scale_blocks * kGeometry.scales;
  __m256 acc[kMaxProductRows * kChains];
  for (int64_t i = 0; i < args.rows * kChains; ++i) acc[i] = _mm256_setzero_ps();
  for (int64_t block = 0; block < blocks; ++block) {
    __m256 values[kBlockColumns];
    dequantize_block<F>(low, high, record, group, static_cast<int>(block % F::kRecordBlocks),
                        values);
    const float* x = args.x + block * kBlockColumns;
    int64_t m = 0;
    for (; m + 2 <= args.rows; m += 2) {
      add_rows<2>(values, x + m * args.x_stride, args.x_stride, acc + m * kChains);
    }
    if (m < args.rows) add_rows<1>(values, x + m * args.x_stride, 0, acc + m * kChains);
    low += kGeometry.low;
    high += kGeometry.high;
    if ((block + 1) % F::kRecordBlocks == 0) record += kGeometry.scales;
  }
  for (int64_t m = 0; m < args.rows; ++m) {
    const __m256* s = acc + m * kChains;
    const __m256 sum = _mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3]));
    store_outputs(args, m, tile * kTileRows + group * Isa::kRows, sum);
  }
}

template <WeightFormat kFormat>
void product(const ProductArgs& args) {
  for (int64_t tile = args.first_tile; tile < args.last_tile; ++tile) {
    for (int group = 0; group < Isa::kGroups; ++group) {
      if (tile * kTileRows + group * Isa::kRows < args.n) row_group<kFormat>(args, tile, group);
    }
  }
}

template <WeightFormat... kFormats>
void fill(MatmulKernels& kernels) {
  ((kernels.exact[static_cast<int>(kFormats)] = product<kFormats>), ...);
}

}  // namespace

void fill_matmul_exact(MatmulKernels& kernels) {
  using enum WeightFormat;
  fill<kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL, kIQ4_XS,
       kMXFP4>(kernels);
}

}  // namespace pelton::kernels::avx2
