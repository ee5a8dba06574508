// AVX-512 vectors for shared/matmul_formats.inl: a whole tile, sixteen rows. Included inside a
// level's unnamed namespace.
struct Isa {
  static constexpr int kRows = 16;
  static constexpr int kGroups = kTileRows / kRows;
  using Bytes = __m512i;
  using Int = __m512i;
  using Float = __m512;

  static Bytes load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static Bytes mask(Bytes x, int bits) {
    return _mm512_and_si512(x, _mm512_set1_epi8(static_cast<char>(bits)));
  }
  template <int kLeft>
  static Bytes shift16(Bytes x) {
    if constexpr (kLeft > 0) return _mm512_slli_epi16(x, kLeft);
    if constexpr (kLeft < 0) return _mm512_srli_epi16(x, -kLeft);
    return x;
  }
  static Bytes either(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
  static Bytes lookup(Bytes table, Bytes codes) { return _mm512_shuffle_epi8(table, codes); }
  static Bytes iq4_table() {
    return _mm512_broadcast_i32x4(
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113));
  }
  // Twice the FP4 values, plus 12.
  static Bytes fp4_table() {
    return _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  }

  static Int u8_to_int(const uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Int s8_to_int(const uint8_t* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Int u16_to_int(const uint8_t* p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Int and_int(Int x, int bits) { return _mm512_and_si512(x, _mm512_set1_epi32(bits)); }
  static Int or_int(Int a, Int b) { return _mm512_or_si512(a, b); }
  static Int sub_int(Int x, int value) { return _mm512_sub_epi32(x, _mm512_set1_epi32(value)); }
  template <int kBits>
  static Int shift_left(Int x) {
    return _mm512_slli_epi32(x, kBits);
  }
  template <int kBits>
  static Int shift_right(Int x) {
    return _mm512_srli_epi32(x, kBits);
  }
  static Int shift_right_by(Int x, int bits) {
    return _mm512_srl_epi32(x, _mm_cvtsi32_si128(bits));
  }
  static Float to_float(Int x) { return _mm512_cvtepi32_ps(x); }
  static Float load_f16(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Float zero() { return _mm512_setzero_ps(); }
  static Float load_float(const float* p) { return _mm512_load_ps(p); }
  static void store(float* p, Float v) { _mm512_store_ps(p, v); }
  static Float broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  // Byte kByte of every lane.
  template <int kByte>
  static Int unsigned_byte(Bytes x) {
    return and_int(_mm512_srli_epi32(x, 8 * kByte), 0xFF);
  }
  template <int kByte>
  static Int signed_byte(Bytes x) {
    return _mm512_srai_epi32(_mm512_slli_epi32(x, 24 - 8 * kByte), 24);
  }
  static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float negate(Float x) { return _mm512_xor_ps(x, _mm512_set1_ps(-0.0f)); }
  // 2^(exponent - 128); the two smallest are subnormal.
  static Float mxfp4_scale(Int exponent) {
    const Int normal = _mm512_slli_epi32(_mm512_sub_epi32(exponent, _mm512_set1_epi32(1)), 23);
    const Int subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), exponent);
    const __mmask16 is_normal = _mm512_cmpgt_epi32_mask(exponent, _mm512_set1_epi32(1));
    return _mm512_castsi512_ps(_mm512_mask_blend_epi32(is_normal, subnormal, normal));
  }
};

// Writes the outputs of one tile and row with their epilogue; `first` is the first of them.
[[gnu::always_inline]] inline void store_outputs(const ProductArgs& args, int64_t row,
                                                 int64_t first, __m512 value) {
  const int64_t left = args.n - first;
  const auto lanes =
      left >= Isa::kRows ? __mmask16{0xFFFF} : static_cast<__mmask16>((1u << left) - 1);
  float* out = args.out + row * args.out_stride + first;
  if (args.bias != nullptr) {
    value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(lanes, args.bias + first));
  }
  if (args.accumulate) value = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, out), value);
  _mm512_mask_storeu_ps(out, lanes, value);
}
