// Products of float activations with packed weights: a block of a row group is dequantized to the
// very values that dequantize_row gives, then met by every activation row. An output is four
// partial sums, by k % 4, in block order. Included inside an ISA level's unnamed namespace, after
// its Isa and the formats.

constexpr int kChains = 4;

// Column 4g + kByte of a row group, dequantized.
template <class F, int kByte>
[[gnu::always_inline]] inline Isa::Float dequantize_column(Isa::Bytes w, const Scales<Isa>& s) {
  Isa::Int code;
  if constexpr (F::kDot == Dot::kSigned) {
    code = Isa::signed_byte<kByte>(w);
  } else {
    code = Isa::unsigned_byte<kByte>(w);
    if constexpr (F::kOffset != 0) code = Isa::sub_int(code, F::kOffset);
  }
  // The product is exact where a minimum follows, so fusing rounds as two steps would.
  if constexpr (F::kMinimum) return Isa::fma(Isa::to_float(code), s.scale, s.addend);
  return Isa::mul(Isa::to_float(code), s.scale);
}

// values[k]: column k of a row group.
template <class F>
[[gnu::always_inline]] inline void dequantize_block(const uint8_t* low, const uint8_t* high,
                                                    const uint8_t* record, int group, int i,
                                                    Isa::Float* values) {
  Isa::Bytes w[8];
  F::codes(low + 4 * Isa::kRows * group, high + 4 * Isa::kRows * group, w);
  Scales<Isa> scales[2];
  scales[0] = float_scales<Isa, F>(record, group, i, 0);
  scales[1] = F::kDot == Dot::kHalves ? float_scales<Isa, F>(record, group, i, 1) : scales[0];
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    const Scales<Isa>& s = scales[g / 4];
    values[4 * g] = dequantize_column<F, 0>(w[g], s);
    values[4 * g + 1] = dequantize_column<F, 1>(w[g], s);
    values[4 * g + 2] = dequantize_column<F, 2>(w[g], s);
    values[4 * g + 3] = dequantize_column<F, 3>(w[g], s);
  }
}

// kM rows from `x` on, their chains at `acc` [row][chain].
template <int kM>
[[gnu::always_inline]] inline void add_rows(const Isa::Float* values, const float* x,
                                            int64_t x_stride, Isa::Float* acc) {
  Isa::Float sums[kM][kChains];
  for (int m = 0; m < kM; ++m) {
    for (int j = 0; j < kChains; ++j) sums[m][j] = acc[m * kChains + j];
  }
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
#pragma GCC unroll 4
    for (int j = 0; j < kChains; ++j) {
#pragma GCC unroll 2
      for (int m = 0; m < kM; ++m) {
        sums[m][j] =
            Isa::fma(values[4 * g + j], Isa::broadcast(x + m * x_stride + 4 * g + j), sums[m][j]);
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
  Isa::Float acc[kMaxProductRows * kChains];
  for (int64_t i = 0; i < args.rows * kChains; ++i) acc[i] = Isa::zero();
  for (int64_t block = 0; block < blocks; ++block) {
    Isa::Float values[kBlockColumns];
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
    const Isa::Float* s = acc + m * kChains;
    const Isa::Float sum = Isa::add(Isa::add(s[0], s[1]), Isa::add(s[2], s[3]));
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
