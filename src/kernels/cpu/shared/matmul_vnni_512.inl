// Dot products of one packed block of sixteen rows, AVX-512 VNNI, for shared/matmul_int8.inl. Sums
// start at the offset's share, so that codes stay unsigned; signed codes are moved by 128. Included
// inside a level's unnamed namespace, after the formats.

template <class F>
inline constexpr bool kHasOffset = F::kOffset != 0 || F::kDot == Dot::kSigned;

template <class F>
[[gnu::always_inline]] inline void prepare_codes(__m512i* w) {
  if constexpr (F::kDot == Dot::kSigned) {
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) w[g] = _mm512_xor_si512(w[g], _mm512_set1_epi8(-128));
  }
}

[[gnu::always_inline]] inline __m512i broadcast_word(const void* word) {
  int value;
  __builtin_memcpy(&value, word, sizeof(value));
  return _mm512_set1_epi32(value);
}

// Where the dot product of half `half` of row m begins.
template <class F>
[[gnu::always_inline]] inline __m512i offset_of(const BlockActivations& a, int64_t m, int half) {
  if constexpr (!kHasOffset<F>) return _mm512_setzero_si512();
  return broadcast_word(a.offsets + kHalvesPerBlock * m + half);
}

template <class F>
[[gnu::always_inline]] inline HalfDots<Isa> half_dots(const __m512i* w, const BlockActivations& a,
                                                      int64_t m) {
  const int8_t* codes = a.codes + kBlockColumns * m;
  HalfDots<Isa> dots = {{offset_of<F>(a, m, 0), offset_of<F>(a, m, 1)}};
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    dots.half[0] = _mm512_dpbusd_epi32(dots.half[0], w[g], broadcast_word(codes + 4 * g));
    dots.half[1] = _mm512_dpbusd_epi32(dots.half[1], w[g + 4], broadcast_word(codes + 4 * g + 16));
  }
  return dots;
}
