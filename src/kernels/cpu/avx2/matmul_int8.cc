// Products of 8-bit activation rows with packed weights, AVX2.
//
// A block of eight weight rows is unpacked to eight registers of unsigned codes, then met by every
// activation row: eight maddubs against broadcast groups of four codes, summed in 16 bits where the
// bound allows (sums may wrap on the way; the final value, offset included, fits), one madd to 32
// bits, then acc += (scale_w * scale_a) * dot, block after block.
// Bytes moved: the matrix once a call; activation codes once for every eight rows.
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/levels.h"

namespace pelton::kernels::avx2 {

void fill_matmul_int8(MatmulKernels& kernels);

namespace {

#include "kernels/cpu/avx2/matmul_isa.inl"
#include "kernels/cpu/shared/matmul_formats.inl"

[[gnu::always_inline]] inline __m256i broadcast_group(const int8_t* codes) {
  return _mm256_castps_si256(_mm256_broadcast_ss(reinterpret_cast<const float*>(codes)));
}
[[gnu::always_inline]] inline __m256i broadcast_word(const uint32_t* word) {
  return _mm256_castps_si256(_mm256_broadcast_ss(reinterpret_cast<const float*>(word)));
}
// The 16-bit value of each 32-bit lane in both of its halves.
[[gnu::always_inline]] inline __m256i pair16(__m256i x) {
  return _mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                    0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13)));
}

// Scales of one record (one block, or eight) of eight rows, decoded ahead of its blocks so that the
// block loop stays small.
template <class F>
struct RecordScales {
  __m256 scale[F::kRecordBlocks];
  __m256 addend[F::kMinimum ? F::kRecordBlocks : 1];
};
template <class F>
struct HalfRecordScales {
  __m256i half[F::kRecordBlocks][2];                    // each half's scale, in pairs
  __m256i minimum[F::kMinimum ? F::kRecordBlocks : 1];  // Q2_K: one half's minimum in 16 bits
  __m256 scale;
  __m256 addend;
};
template <class F>
using Record = std::conditional_t<F::kDot == Dot::kHalves, HalfRecordScales<F>, RecordScales<F>>;

template <class F>
[[gnu::always_inline]] inline void load_record(const uint8_t* record, int group, Record<F>* out) {
#pragma GCC unroll 8
  for (int i = 0; i < F::kRecordBlocks; ++i) {
    if constexpr (F::kDot == Dot::kHalves) {
      const HalfScales<Isa> s = F::half_scales(record, group, i);
      out->half[i][0] = pair16(s.scale[0]);
      out->half[i][1] = pair16(s.scale[1]);
      out->scale = s.d;
      if constexpr (F::kMinimum) {
        out->minimum[i] = _mm256_or_si256(s.minimum[0], _mm256_slli_epi32(s.minimum[1], 16));
        out->addend = Isa::negate(s.dmin);
      }
    } else {
      const Scales<Isa> s = F::scales(record, group, i);
      out->scale[i] = s.scale;
      if constexpr (F::kMinimum) out->addend[i] = s.addend;
    }
  }
}

// One unpacked block of eight rows.
template <class F>
struct Block {
  __m256i w[8];
  __m256 scale;
  __m256 addend;
  __m256i half[2];
  __m256i minimum;
};

template <class F>
[[gnu::always_inline]] inline Block<F> load_block(const uint8_t* low, const uint8_t* high,
                                                  const Record<F>& record, int group, int i) {
  Block<F> b;
  F::codes(low + 32 * group, high + 32 * group, b.w);
  if constexpr (F::kDot == Dot::kHalves) {
    b.half[0] = record.half[i][0];
    b.half[1] = record.half[i][1];
    b.scale = record.scale;
    if constexpr (F::kMinimum) {
      b.minimum = record.minimum[i];
      b.addend = record.addend;
    }
  } else {
    b.scale = record.scale[i];
    if constexpr (F::kMinimum) b.addend = record.addend[i];
  }
  return b;
}

// Sum over groups [first, last) in 16 bits, on top of `sum`.
template <int kFirst, int kLast>
[[gnu::always_inline]] inline __m256i sum16(const __m256i* w, const int8_t* a) {
  __m256i sum = _mm256_maddubs_epi16(w[kFirst], broadcast_group(a + 4 * kFirst));
#pragma GCC unroll 8
  for (int g = kFirst + 1; g < kLast; ++g) {
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w[g], broadcast_group(a + 4 * g)));
  }
  return sum;
}

template <class F>
[[gnu::always_inline]] inline __m256 add_block(const Block<F>& b, const BlockActivations& a,
                                               int64_t m, __m256 acc) {
  const __m256i ones = _mm256_set1_epi16(1);
  const int8_t* codes = a.codes + 32 * m;
  __m256i dot;
  if constexpr (F::kDot == Dot::kNarrow) {
    __m256i sum = sum16<0, 8>(b.w, codes);
    if constexpr (F::kOffset != 0) sum = _mm256_add_epi16(sum, broadcast_word(a.offsets + m));
    dot = _mm256_madd_epi16(sum, ones);
  } else if constexpr (F::kDot == Dot::kWide) {
    dot = _mm256_add_epi32(_mm256_madd_epi16(sum16<0, 4>(b.w, codes), ones),
                           _mm256_madd_epi16(sum16<4, 8>(b.w, codes), ones));
  } else if constexpr (F::kDot == Dot::kHalves) {
    __m256i first = sum16<0, 4>(b.w, codes);
    __m256i second = sum16<4, 8>(b.w, codes);
    if constexpr (F::kOffset != 0) {
      first = _mm256_add_epi16(first, broadcast_word(a.offsets + 2 * m));
      second = _mm256_add_epi16(second, broadcast_word(a.offsets + 2 * m + 1));
    }
    dot =
        _mm256_add_epi32(_mm256_madd_epi16(first, b.half[0]), _mm256_madd_epi16(second, b.half[1]));
  } else {
    dot = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const __m256i signed_codes = _mm256_sign_epi8(broadcast_group(codes + 4 * g), b.w[g]);
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(b.w[g]), signed_codes);
      dot = _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, ones));
    }
  }
  const __m256 scale_a = _mm256_broadcast_ss(a.scales + m);
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(b.scale, scale_a), acc);
  if constexpr (F::kMinimum && F::kDot == Dot::kHalves) {
    const __m256i minima = _mm256_madd_epi16(b.minimum, broadcast_word(a.offsets + m));
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(minima), _mm256_mul_ps(b.addend, scale_a), acc);
  } else if constexpr (F::kMinimum) {
    acc = _mm256_fmadd_ps(b.addend, _mm256_broadcast_ss(a.sums + m), acc);
  }
  return acc;
}

#include "kernels/cpu/shared/matmul_int8.inl"

void store_words(__m256i pairs, int scale, uint32_t* first, uint32_t* second) {
  const __m256i scaled = _mm256_mullo_epi16(pairs, _mm256_set1_epi16(static_cast<short>(scale)));
  *first = static_cast<uint32_t>(_mm256_extract_epi32(scaled, 0));
  *second = static_cast<uint32_t>(_mm256_extract_epi32(scaled, 4));
}

// `pairs`: in every 32-bit lane of 128-bit lane h, the sums over half h of the codes with column
// % 4 in {0, 1} (low 16 bits) and {2, 3}. Maddubs leaves its sums in these two places, so offsets
// are subtracted there.
void write_offsets(const QuantizedRows& out, int64_t at, __m256i pairs) {
  const auto words = [&](OffsetKind kind) { return out.offsets[static_cast<int>(kind)]; };
  const __m256i both = _mm256_add_epi16(pairs, _mm256_permute2x128_si256(pairs, pairs, 1));
  uint32_t unused;
  if (uint32_t* w = words(OffsetKind::k8)) store_words(both, -8, w + at, &unused);
  if (uint32_t* w = words(OffsetKind::k12)) store_words(both, -12, w + at, &unused);
  if (uint32_t* w = words(OffsetKind::k16)) store_words(both, -16, w + at, &unused);
  if (uint32_t* w = words(OffsetKind::kHalves4)) {
    store_words(pairs, -4, w + 2 * at, w + 2 * at + 1);
  }
  if (uint32_t* w = words(OffsetKind::kHalves32)) {
    store_words(pairs, -32, w + 2 * at, w + 2 * at + 1);
  }
  if (uint32_t* w = words(OffsetKind::kHalfSums)) {
    const __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    const auto first = static_cast<uint32_t>(_mm256_extract_epi32(sums, 0));
    const auto second = static_cast<uint32_t>(_mm256_extract_epi32(sums, 4));
    w[at] = (first & 0xFFFFu) | second << 16;
  }
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
