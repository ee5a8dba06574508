// Products of 8-bit activation rows with packed weights, AVX2.
//
// A block of eight weight rows is unpacked to eight registers of unsigned codes, then met by every
// activation row: eight maddubs against broadcast groups of four codes, summed in 16 bits where the
// bound allows (sums may wrap on the way; the final value, offset included, fits), one madd to 32
// bits, then acc += (scale_w * scale_a) * dot, block after block.
// Bytes moved: the matrix once a call; activation codes once for every eight rows.
#include <immintrin.h>

#include <cstdint>

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
  return _mm256_or_si256(_mm256_and_si256(x, _mm256_set1_epi32(0xFFFF)), _mm256_slli_epi32(x, 16));
}

// One unpacked block of eight rows.
template <class F>
struct Block {
  __m256i w[8];
  __m256 scale;
  __m256 addend;
  __m256i half[2];  // kHalves: the halves' scales, in pairs
  __m256i minimum;  // Q2_K: the halves' minima, one in each 16 bits
};

template <class F>
[[gnu::always_inline]] inline Block<F> load_block(const uint8_t* low, const uint8_t* high,
                                                  const uint8_t* record, int group, int i) {
  Block<F> b;
  F::codes(low + 32 * group, high + 32 * group, b.w);
  if constexpr (F::kDot == Dot::kHalves) {
    const HalfScales<Isa> s = F::half_scales(record, group, i);
    b.half[0] = pair16(s.scale[0]);
    b.half[1] = pair16(s.scale[1]);
    b.scale = s.d;
    if constexpr (F::kMinimum) {
      b.minimum = _mm256_or_si256(s.minimum[0], _mm256_slli_epi32(s.minimum[1], 16));
      b.addend = Isa::negate(s.dmin);
    }
  } else {
    const Scales<Isa> s = F::scales(record, group, i);
    b.scale = s.scale;
    if constexpr (F::kMinimum) b.addend = s.addend;
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

// Pointers to the activations of one block, first row.
struct BlockActivations {
  const int8_t* codes;
  const float* scales;
  const float* sums;
  const uint32_t* offsets;
};

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

// Positions of one tile in the planes and of the activations, advanced block by block.
template <WeightFormat kFormat>
struct Cursor {
  static constexpr PackedGeometry kGeometry = packed_geometry(kFormat);
  static constexpr OffsetKind kKind = offset_kind(kFormat);
  const uint8_t* low;
  const uint8_t* high;
  const uint8_t* record;
  BlockActivations a;
  int64_t rows;

  [[gnu::always_inline]] Cursor(const ProductArgs& args, int64_t tile) {
    const QuantizedRows& q = *args.quantized;
    const int64_t index = tile * q.blocks;
    low = args.low + index * kGeometry.low;
    high = args.high + index * kGeometry.high;
    record = args.scales + index / kGeometry.scale_blocks * kGeometry.scales;
    a = {q.codes, q.scales, q.sums, q.offsets[static_cast<int>(kKind)]};
    rows = q.rows;
  }
  [[gnu::always_inline]] void next() {
    low += kGeometry.low;
    high += kGeometry.high;
    a.codes += 32 * rows;
    a.scales += rows;
    a.sums += rows;
    a.offsets += offset_words(kKind) * rows;
  }
};

// Few rows: all accumulators in registers, both halves of the tile in one pass over its bytes.
template <WeightFormat kFormat, int kRows>
void tile_few(const ProductArgs& args, int64_t tile) {
  using F = Format<Isa, kFormat>;
  Cursor<kFormat> at(args, tile);
  __m256 acc[Isa::kGroups][kRows];
  for (auto& group : acc) {
    for (__m256& v : group) v = _mm256_setzero_ps();
  }
  for (int64_t left = args.quantized->blocks; left > 0; left -= F::kRecordBlocks) {
#pragma GCC unroll 8
    for (int i = 0; i < F::kRecordBlocks; ++i) {
#pragma GCC unroll 2
      for (int group = 0; group < Isa::kGroups; ++group) {
        const Block<F> b = load_block<F>(at.low, at.high, at.record, group, i);
#pragma GCC unroll 4
        for (int m = 0; m < kRows; ++m) acc[group][m] = add_block(b, at.a, m, acc[group][m]);
      }
      at.next();
    }
    at.record += Cursor<kFormat>::kGeometry.scales;
  }
  for (int group = 0; group < Isa::kGroups; ++group) {
    for (int m = 0; m < kRows; ++m) {
      const int64_t first = tile * kTileRows + group * Isa::kRows;
      if (first < args.n) store_outputs(args, m, first, acc[group][m]);
    }
  }
}

// Many rows: accumulators in the first-level cache, so that a block is unpacked once for all.
template <WeightFormat kFormat>
void tile_many(const ProductArgs& args, int64_t tile) {
  using F = Format<Isa, kFormat>;
  for (int group = 0; group < Isa::kGroups; ++group) {
    const int64_t first = tile * kTileRows + group * Isa::kRows;
    if (first >= args.n) return;
    Cursor<kFormat> at(args, tile);
    alignas(32) float acc[kMaxProductRows * Isa::kRows];
    for (int64_t m = 0; m < args.rows; ++m) {
      _mm256_store_ps(acc + m * Isa::kRows, _mm256_setzero_ps());
    }
    for (int64_t left = args.quantized->blocks; left > 0; left -= F::kRecordBlocks) {
      for (int i = 0; i < F::kRecordBlocks; ++i) {
        const Block<F> b = load_block<F>(at.low, at.high, at.record, group, i);
        for (int64_t m = 0; m < args.rows; ++m) {
          float* sum = acc + m * Isa::kRows;
          _mm256_store_ps(sum, add_block(b, at.a, m, _mm256_load_ps(sum)));
        }
        at.next();
      }
      at.record += Cursor<kFormat>::kGeometry.scales;
    }
    for (int64_t m = 0; m < args.rows; ++m) {
      store_outputs(args, m, first, _mm256_load_ps(acc + m * Isa::kRows));
    }
  }
}

template <WeightFormat kFormat>
void product(const ProductArgs& args) {
  for (int64_t tile = args.first_tile; tile < args.last_tile; ++tile) {
    switch (args.rows) {
      case 1:
        tile_few<kFormat, 1>(args, tile);
        break;
      case 2:
        tile_few<kFormat, 2>(args, tile);
        break;
      case 3:
        tile_few<kFormat, 3>(args, tile);
        break;
      default:
        tile_many<kFormat>(args, tile);
    }
  }
}

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

void quantize_block(const float* x, int64_t at, const QuantizedRows& out) {
  constexpr float kSmallestMaximum = 0x1.0p-100f;  // below it the reciprocal would overflow
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  __m256 v[4];
  __m256i maximum = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    // As integers, magnitudes order like floats and NaN lies above infinity.
    maximum = _mm256_max_epi32(maximum, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
  }
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(maximum), _mm256_extracti128_si256(maximum, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
  const float largest = _mm_cvtss_f32(_mm_castsi128_ps(m));
  const bool finite = _mm_cvtsi128_si32(m) < 0x7F800000;
  const bool zero = !finite || largest < kSmallestMaximum;
  const float inverse = zero ? 0.0f : 127.0f / largest;
  const float scale = finite ? (zero ? 0.0f : largest / 127.0f) : __builtin_nanf("");
  __m256i q[4];
  for (int i = 0; i < 4; ++i) {
    q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
  }
  __m256i codes =
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  codes = _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  if (!finite) codes = _mm256_setzero_si256();
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.codes + at * kBlockColumns), codes);

  __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
  pairs = _mm256_add_epi16(pairs, _mm256_shuffle_epi32(pairs, 0x4E));
  pairs = _mm256_add_epi16(pairs, _mm256_shuffle_epi32(pairs, 0xB1));
  const __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  const int sum = _mm256_extract_epi32(sums, 0) + _mm256_extract_epi32(sums, 4);
  out.scales[at] = scale;
  out.sums[at] = scale * static_cast<float>(sum);
  write_offsets(out, at, pairs);
}

void quantize(const float* x, int64_t x_stride, int64_t first, int64_t last,
              const QuantizedRows& out) {
  for (int64_t row = first; row < last; ++row) {
    for (int64_t block = 0; block < out.blocks; ++block) {
      quantize_block(x + row * x_stride + block * kBlockColumns, block * out.rows + row, out);
    }
  }
}

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
