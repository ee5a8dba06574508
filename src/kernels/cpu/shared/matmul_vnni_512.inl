// One packed block of sixteen rows and its dot products, AVX-512 VNNI, for shared/matmul_int8.inl.
// Sums start at the offset's share, so that codes stay unsigned; signed codes are moved by 128.
// Included inside a level's unnamed namespace, after the formats.

// Scales of one record (one block, or eight), decoded ahead of its blocks.
template <class F>
struct Record {
  static constexpr int kParts = F::kDot == Dot::kHalves ? 2 : 1;
  static constexpr bool kHalfMinimum = F::kDot == Dot::kHalves && F::kMinimum;
  __m512 scale[F::kRecordBlocks][kParts];
  __m512 addend[F::kMinimum ? F::kRecordBlocks : 1];
  __m512i minimum[kHalfMinimum ? F::kRecordBlocks : 1];  // Q2_K: one half's minimum in 16 bits
};

template <class F>
[[gnu::always_inline]] inline void load_record(const uint8_t* record, int group, Record<F>* out) {
#pragma GCC unroll 8
  for (int i = 0; i < F::kRecordBlocks; ++i) {
    if constexpr (F::kDot == Dot::kHalves) {
      const HalfScales<Isa> s = F::half_scales(record, group, i);
      out->scale[i][0] = _mm512_mul_ps(s.d, _mm512_cvtepi32_ps(s.scale[0]));
      out->scale[i][1] = _mm512_mul_ps(s.d, _mm512_cvtepi32_ps(s.scale[1]));
      if constexpr (F::kMinimum) {
        out->minimum[i] = _mm512_or_si512(s.minimum[0], _mm512_slli_epi32(s.minimum[1], 16));
        out->addend[i] = Isa::negate(s.dmin);
      }
    } else {
      const Scales<Isa> s = F::scales(record, group, i);
      out->scale[i][0] = s.scale;
      if constexpr (F::kMinimum) out->addend[i] = s.addend;
    }
  }
}

template <class F>
struct Block {
  __m512i w[8];
  __m512 scale[Record<F>::kParts];
  __m512 addend;
  __m512i minimum;
};

// Codes of one block as the unsigned bytes that the dot products read.
template <class F>
[[gnu::always_inline]] inline void load_codes(const uint8_t* low, const uint8_t* high, __m512i* w) {
  F::codes(low, high, w);
  if constexpr (F::kDot == Dot::kSigned) {
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) w[g] = _mm512_xor_si512(w[g], _mm512_set1_epi8(-128));
  }
}

template <class F>
[[gnu::always_inline]] inline Block<F> load_block(const uint8_t* low, const uint8_t* high,
                                                  const Record<F>& record, int, int i) {
  Block<F> b;
  load_codes<F>(low, high, b.w);
  for (int part = 0; part < Record<F>::kParts; ++part) b.scale[part] = record.scale[i][part];
  if constexpr (F::kMinimum) b.addend = record.addend[i];
  if constexpr (Record<F>::kHalfMinimum) b.minimum = record.minimum[i];
  return b;
}

[[gnu::always_inline]] inline __m512i broadcast_word(const void* word) {
  int value;
  __builtin_memcpy(&value, word, sizeof(value));
  return _mm512_set1_epi32(value);
}

template <int kFirst, int kLast>
[[gnu::always_inline]] inline __m512i dot_groups(__m512i sum, const __m512i* w,
                                                 const int8_t* codes) {
#pragma GCC unroll 8
  for (int g = kFirst; g < kLast; ++g) {
    sum = _mm512_dpbusd_epi32(sum, w[g], broadcast_word(codes + 4 * g));
  }
  return sum;
}

template <class F>
inline constexpr bool kHasOffset = F::kOffset != 0 || F::kDot == Dot::kSigned;

// The float side of one block: dots already offset-corrected.
template <class F>
[[gnu::always_inline]] inline __m512 add_dots(const __m512i* dots, const __m512* scale,
                                              __m512 addend, __m512i minimum,
                                              const BlockActivations& a, int64_t m, __m512 acc) {
  const __m512 scale_a = _mm512_set1_ps(a.scales[m]);
  acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[0]), _mm512_mul_ps(scale[0], scale_a), acc);
  if constexpr (F::kDot == Dot::kHalves) {
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[1]), _mm512_mul_ps(scale[1], scale_a), acc);
  }
  if constexpr (F::kMinimum && F::kDot == Dot::kHalves) {
    const __m512i minima =
        _mm512_dpwssd_epi32(_mm512_setzero_si512(), minimum, broadcast_word(a.offsets + m));
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(minima), _mm512_mul_ps(addend, scale_a), acc);
  } else if constexpr (F::kMinimum) {
    acc = _mm512_fmadd_ps(addend, _mm512_set1_ps(a.sums[m]), acc);
  }
  return acc;
}

template <class F>
[[gnu::always_inline]] inline __m512 add_block(const Block<F>& b, const BlockActivations& a,
                                               int64_t m, __m512 acc) {
  const int8_t* codes = a.codes + 32 * m;
  __m512i dots[2];
  if constexpr (F::kDot == Dot::kHalves) {
    dots[0] = dots[1] = _mm512_setzero_si512();
    if constexpr (kHasOffset<F>) {
      dots[0] = broadcast_word(a.offsets + 2 * m);
      dots[1] = broadcast_word(a.offsets + 2 * m + 1);
    }
    dots[0] = dot_groups<0, 4>(dots[0], b.w, codes);
    dots[1] = dot_groups<4, 8>(dots[1], b.w, codes);
  } else {
    dots[0] = kHasOffset<F> ? broadcast_word(a.offsets + m) : _mm512_setzero_si512();
    dots[0] = dot_groups<0, 8>(dots[0], b.w, codes);
  }
  return add_dots<F>(dots, b.scale, b.addend, b.minimum, a, m, acc);
}
