// Products of 8-bit activation rows with packed weights, AVX2.
//
// A block of eight weight rows is unpacked to eight registers of unsigned codes, then met by every
// activation row: eight maddubs against broadcast groups of four codes, summed in 16 bits over half
// a block (sums may wrap on the way; the final value, offset included, fits), one madd to 32 bits,
// then the float side, block after block.
// Bytes moved: the matrix once a call; activation codes once for every eight rows.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/levels.h"

namespace pelton::kernels::avx2 {

void fill_matmul_int8(MatmulKernels& kernels);

namespace {

#include "kernels/cpu/avx2/matmul_isa.inl"
#include "kernels/cpu/shared/matmul_formats.inl"

[[gnu::always_inline]] inline __m256i broadcast_word(const void* word) {
  return _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(word)));
}

template <class F>
[[gnu::always_inline]] inline void prepare_codes(__m256i*) {}

template <class F, int kHalf>
[[gnu::always_inline]] inline __m256i half_dot(const __m256i* w, const int8_t* codes,
                                               const uint32_t* offset) {
  constexpr int kFirst = 4 * kHalf;
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (F::kDot == Dot::kSigned) {
    __m256i dot = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int g = kFirst; g < kFirst + 4; ++g) {
      const __m256i signed_codes = _mm256_sign_epi8(broadcast_word(codes + 4 * g), w[g]);
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w[g]), signed_codes);
      dot = _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, ones));
    }
    return dot;
  } else {
    __m256i sum = _mm256_maddubs_epi16(w[kFirst], broadcast_word(codes + 4 * kFirst));
#pragma GCC unroll 4
    for (int g = kFirst + 1; g < kFirst + 4; ++g) {
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w[g], broadcast_word(codes + 4 * g)));
    }
    if constexpr (F::kOffset != 0) sum = _mm256_add_epi16(sum, broadcast_word(offset + kHalf));
    return _mm256_madd_epi16(sum, ones);
  }
}

template <class F>
[[gnu::always_inline]] inline HalfDots<Isa> half_dots(const __m256i* w, const BlockActivations& a,
                                                      int64_t m) {
  const int8_t* codes = a.codes + kBlockColumns * m;
  const uint32_t* offset = F::kOffset != 0 ? a.offsets + kHalvesPerBlock * m : nullptr;
  return {{half_dot<F, 0>(w, codes, offset), half_dot<F, 1>(w, codes, offset)}};
}

#include "kernels/cpu/shared/matmul_int8.inl"

// `pairs`: in every 32-bit lane of 128-bit lane h, the sums over half h of the codes with column
// % 4 in {0, 1} (low 16 bits) and {2, 3}. Maddubs leaves its sums in these two places, so offsets
// are subtracted there.
void write_offsets(const QuantizedRows& out, int64_t at, __m256i pairs) {
  const auto write = [&](OffsetKind kind, short offset) {
    uint32_t* words = out.offsets[static_cast<int>(kind)];
    if (words == nullptr) return;
    const __m256i scaled = _mm256_mullo_epi16(pairs, _mm256_set1_epi16(offset));
    words[kHalvesPerBlock * at] = static_cast<uint32_t>(_mm256_extract_epi32(scaled, 0));
    words[kHalvesPerBlock * at + 1] = static_cast<uint32_t>(_mm256_extract_epi32(scaled, 4));
  };
  write(OffsetKind::k4, -4);
  write(OffsetKind::k8, -8);
  write(OffsetKind::k12, -12);
  write(OffsetKind::k16, -16);
  write(OffsetKind::k32, -32);
}

#include "kernels/cpu/shared/matmul_quantize.inl"

template <WeightFormat... kFormats>
void fill(MatmulKernels& kernels) {
  ((kernels.int8[static_cast<int>(kFormats)] = product<kFormats>), ...);
}

}  // namespace

void fill_matmul_int8(MatmulKernels& kernels) {
  using enum WeightFormat;
  kernels.quantize = quantize;
  fill<kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL, kIQ4_XS,
       kMXFP4>(kernels);
}

}  // namespace pelton::kernels::avx2
