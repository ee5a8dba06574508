// Quantization of activation rows, with 256-bit vectors. Included inside an ISA level's unnamed
// namespace, after its write_offsets(out, at, pairs), where `pairs` holds in every 32-bit lane of
// 128-bit lane h the sums over half h of the codes with column % 4 in {0, 1} (low 16 bits) and
// {2, 3}.

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
