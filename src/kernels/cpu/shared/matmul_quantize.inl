// Quantization of activation rows, with 256-bit vectors. Included inside an ISA level's unnamed
// namespace, after its write_offsets(out, at, pairs), where `pairs` holds in every 32-bit lane of
// 128-bit lane h the sums over half h of the codes with column % 4 in {0, 1} (low 16 bits) and
// {2, 3}.

// 128-bit lane h of each result belongs to half h of the block.
void quantize_block(const float* x, int64_t at, const QuantizedRows& out) {
  constexpr float kSmallestMaximum = 0x1.0p-100f;  // below it the reciprocal would overflow
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  __m256 v[4];
  __m256i m[4];
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    m[i] = _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude);
  }
  // As integers, magnitudes order like floats and NaN lies above infinity.
  const __m256i halves[2] = {_mm256_max_epi32(m[0], m[1]), _mm256_max_epi32(m[2], m[3])};
  __m256i largest = _mm256_max_epi32(_mm256_permute2x128_si256(halves[0], halves[1], 0x20),
                                     _mm256_permute2x128_si256(halves[0], halves[1], 0x31));
  largest = _mm256_max_epi32(largest, _mm256_shuffle_epi32(largest, 0x4E));
  largest = _mm256_max_epi32(largest, _mm256_shuffle_epi32(largest, 0xB1));
  const __m256 maximum = _mm256_castsi256_ps(largest);
  const __m256i finite = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x7F800000), largest);
  const __m256 usable =
      _mm256_and_ps(_mm256_castsi256_ps(finite),
                    _mm256_cmp_ps(maximum, _mm256_set1_ps(kSmallestMaximum), _CMP_GE_OQ));
  const __m256 inverse = _mm256_and_ps(usable, _mm256_div_ps(_mm256_set1_ps(127.0f), maximum));
  const __m256 scale =
      _mm256_blendv_ps(_mm256_set1_ps(__builtin_nanf("")),
                       _mm256_and_ps(usable, _mm256_div_ps(maximum, _mm256_set1_ps(127.0f))),
                       _mm256_castsi256_ps(finite));
  const __m256 inverses[2] = {_mm256_permute2f128_ps(inverse, inverse, 0x00),
                              _mm256_permute2f128_ps(inverse, inverse, 0x11)};
  __m256i q[4];
  for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverses[i / 2]));
  __m256i codes =
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  codes = _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  codes = _mm256_and_si256(codes, finite);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.codes + at * kBlockColumns), codes);

  __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
  pairs = _mm256_add_epi16(pairs, _mm256_shuffle_epi32(pairs, 0x4E));
  pairs = _mm256_add_epi16(pairs, _mm256_shuffle_epi32(pairs, 0xB1));
  const __m256 sums =
      _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
  const auto store_halves = [at](float* to, __m256 values) {
    to[kHalvesPerBlock * at] = _mm256_cvtss_f32(values);
    to[kHalvesPerBlock * at + 1] = _mm_cvtss_f32(_mm256_extractf128_ps(values, 1));
  };
  store_halves(out.scales, scale);
  out.sums[at] = _mm256_cvtss_f32(sums) + _mm_cvtss_f32(_mm256_extractf128_ps(sums, 1));
  if (out.half_sums != nullptr) store_halves(out.half_sums, sums);
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
