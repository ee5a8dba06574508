// AVX2 vectors for shared/matmul_formats.inl: half a tile, eight rows. Included inside the level's
// unnamed namespace.
struct Isa {
  static constexpr int kRows = 8;
  static constexpr int kGroups = kTileRows / kRows;
  using Bytes = __m256i;
  using Int = __m256i;
  using Float = __m256;

  static Bytes load(const uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static Bytes mask(Bytes x, int bits) {
    return _mm256_and_si256(x, _mm256_set1_epi8(static_cast<char>(bits)));
  }
  template <int kLeft>
  static Bytes shift16(Bytes x) {
    if constexpr (kLeft > 0) return _mm256_slli_epi16(x, kLeft);
    if constexpr (kLeft < 0) return _mm256_srli_epi16(x, -kLeft);
    return x;
  }
  static Bytes either(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
  static Bytes lookup(Bytes table, Bytes codes) { return _mm256_shuffle_epi8(table, codes); }
  static Bytes iq4_table() {
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113));
  }
  // Twice the FP4 values, plus 12.
  static Bytes fp4_table() {
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  }

  static Int u8_to_int(const uint8_t* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static Int s8_to_int(const uint8_t* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static Int u16_to_int(const uint8_t* p) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Int and_int(Int x, int bits) { return _mm256_and_si256(x, _mm256_set1_epi32(bits)); }
  static Int or_int(Int a, Int b) { return _mm256_or_si256(a, b); }
  static Int sub_int(Int x, int value) { return _mm256_sub_epi32(x, _mm256_set1_epi32(value)); }
  template <int kBits>
  static Int shift_left(Int x) {
    return _mm256_slli_epi32(x, kBits);
  }
  template <int kBits>
  static Int shift_right(Int x) {
    return _mm256_srli_epi32(x, kBits);
  }
  static Int shift_right_by(Int x, int bits) {
    return _mm256_srl_epi32(x, _mm_cvtsi32_si128(bits));
  }
  static Float to_float(Int x) { return _mm256_cvtepi32_ps(x); }
  static Float load_f16(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Float zero() { return _mm256_setzero_ps(); }
  static Float load_float(const float* p) { return _mm256_load_ps(p); }
  static void store(float* p, Float v) { _mm256_store_ps(p, v); }
  static Float broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  // Byte kByte of every lane.
  template <int kByte>
  static Int unsigned_byte(Bytes x) {
    return and_int(_mm256_srli_epi32(x, 8 * kByte), 0xFF);
  }
  template <int kByte>
  static Int signed_byte(Bytes x) {
    return _mm256_srai_epi32(_mm256_slli_epi32(x, 24 - 8 * kByte), 24);
  }
  static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float negate(Float x) { return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f)); }
  // 2^(exponent - 128); the two smallest are subnormal.
  static Float mxfp4_scale(Int exponent) {
    const Int normal = _mm256_slli_epi32(_mm256_sub_epi32(exponent, _mm256_set1_epi32(1)), 23);
    const Int subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), exponent);
    const Int is_normal = _mm256_cmpgt_epi32(exponent, _mm256_set1_epi32(1));
    return _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, is_normal));
  }
};

// Writes eight outputs of one row with its epilogue; `first` is the first of them.
[[gnu::always_inline]] inline void store_outputs(const ProductArgs& args, int64_t row,
                                                 int64_t first, __m256 value) {
  float* out = args.out + row * args.out_stride + first;
  if (first + Isa::kRows <= args.n) {
    if (args.bias != nullptr) value = _mm256_add_ps(value, _mm256_loadu_ps(args.bias + first));
    if (args.accumulate) value = _mm256_add_ps(_mm256_loadu_ps(out), value);
    _mm256_storeu_ps(out, value);
    return;
  }
  alignas(32) float lanes[Isa::kRows];
  _mm256_store_ps(lanes, value);
  for (int64_t i = 0; i < args.n - first; ++i) {
    float v = lanes[i];
    if (args.bias != nullptr) v += args.bias[first + i];
    out[i] = args.accumulate ? out[i] + v : v;
  }
}
