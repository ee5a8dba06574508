// Products of 8-bit activation rows with packed weights: the loops over a tile and the float side
// of a block. Included inside an ISA level's unnamed namespace, after its Isa, the formats, and
//   prepare_codes<F>(w): the codes as the level's dot products read them
//   half_dots<F>(w, a, m): dot products of a block with row m of a block of activations
//   store_outputs: the epilogue
// An accumulator meets the blocks in order whatever the number of rows.

// Scales of one record (one block, or eight) of a row group, decoded ahead of its blocks so that
// the block loop stays small. Formats with half-block scales have two parts.
template <class F>
struct Record {
  static constexpr int kParts = F::kDot == Dot::kHalves ? 2 : 1;
  Isa::Float scale[F::kRecordBlocks][kParts];
  Isa::Float addend[F::kMinimum ? F::kRecordBlocks : 1][kParts];
};

template <class F>
[[gnu::always_inline]] inline void load_record(const uint8_t* record, int group, Record<F>* out) {
#pragma GCC unroll 8
  for (int i = 0; i < F::kRecordBlocks; ++i) {
#pragma GCC unroll 2
    for (int part = 0; part < Record<F>::kParts; ++part) {
      const Scales<Isa> s = float_scales<Isa, F>(record, group, i, part);
      out->scale[i][part] = s.scale;
      if constexpr (F::kMinimum) out->addend[i][part] = s.addend;
    }
  }
}

// One unpacked block of a row group.
template <class F>
struct Block {
  Isa::Bytes w[8];
  Isa::Float scale[Record<F>::kParts];
  Isa::Float addend[Record<F>::kParts];
};

template <class F>
[[gnu::always_inline]] inline Block<F> load_block(const uint8_t* low, const uint8_t* high,
                                                  const Record<F>& record, int group, int i) {
  Block<F> b;
  F::codes(low + 4 * Isa::kRows * group, high + 4 * Isa::kRows * group, b.w);
  prepare_codes<F>(b.w);
#pragma GCC unroll 2
  for (int part = 0; part < Record<F>::kParts; ++part) {
    b.scale[part] = record.scale[i][part];
    if constexpr (F::kMinimum) b.addend[part] = record.addend[i][part];
  }
  return b;
}

// acc += the block times row m, from its dot products.
template <class F>
[[gnu::always_inline]] inline Isa::Float add_dots(const Block<F>& b, const HalfDots<Isa>& dots,
                                                  const BlockActivations& a, int64_t m,
                                                  Isa::Float acc) {
  const Isa::Float first = Isa::mul(Isa::to_float(dots.half[0]), Isa::broadcast(a.scales + 2 * m));
  const Isa::Float scale_second = Isa::broadcast(a.scales + 2 * m + 1);
  if constexpr (F::kDot == Dot::kHalves) {
    const Isa::Float second = Isa::mul(Isa::to_float(dots.half[1]), scale_second);
    acc = Isa::fma(b.scale[0], first, acc);
    acc = Isa::fma(b.scale[1], second, acc);
  } else {
    acc = Isa::fma(b.scale[0], Isa::fma(Isa::to_float(dots.half[1]), scale_second, first), acc);
  }
  if constexpr (F::kMinimum && F::kDot == Dot::kHalves) {
    acc = Isa::fma(b.addend[0], Isa::broadcast(a.half_sums + 2 * m), acc);
    acc = Isa::fma(b.addend[1], Isa::broadcast(a.half_sums + 2 * m + 1), acc);
  } else if constexpr (F::kMinimum) {
    acc = Isa::fma(b.addend[0], Isa::broadcast(a.sums + m), acc);
  }
  return acc;
}

template <class F>
[[gnu::always_inline]] inline Isa::Float add_block(const Block<F>& b, const BlockActivations& a,
                                                   int64_t m, Isa::Float acc) {
  return add_dots(b, half_dots<F>(b.w, a, m), a, m, acc);
}

// Positions of one tile in the planes and of the activations, advanced block by block.
template <WeightFormat kFormat>
struct Cursor {
  static constexpr PackedGeometry kGeometry = packed_geometry(kFormat);
  static constexpr OffsetKind kKind = offset_kind(kFormat);
  static constexpr bool kHalfMinimum = has_half_minimum(kFormat);
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
    a = {q.codes, q.scales, q.sums, q.half_sums, q.offsets[static_cast<int>(kKind)]};
    rows = q.rows;
  }
  [[gnu::always_inline]] void next() {
    low += kGeometry.low;
    high += kGeometry.high;
    a.codes += kBlockColumns * rows;
    a.scales += kHalvesPerBlock * rows;
    a.sums += rows;
    if constexpr (kHalfMinimum) a.half_sums += kHalvesPerBlock * rows;
    if constexpr (kKind != OffsetKind::kNone) a.offsets += kHalvesPerBlock * rows;
  }
};

// Few rows: all accumulators in registers, both halves of the tile in one pass over its bytes.
template <WeightFormat kFormat, int kRows>
void tile_few(const ProductArgs& args, int64_t tile) {
  using F = Format<Isa, kFormat>;
  Cursor<kFormat> at(args, tile);
  Isa::Float acc[Isa::kGroups][kRows];
  for (auto& group : acc) {
    for (Isa::Float& v : group) v = Isa::zero();
  }
  for (int64_t left = args.quantized->blocks; left > 0; left -= F::kRecordBlocks) {
    Record<F> records[Isa::kGroups];
#pragma GCC unroll 2
    for (int group = 0; group < Isa::kGroups; ++group) {
      load_record<F>(at.record, group, &records[group]);
    }
#pragma GCC unroll 1
    for (int i = 0; i < F::kRecordBlocks; ++i) {
#pragma GCC unroll 2
      for (int group = 0; group < Isa::kGroups; ++group) {
        const Block<F> b = load_block<F>(at.low, at.high, records[group], group, i);
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
    alignas(64) float acc[kMaxProductRows * Isa::kRows];
    for (int64_t m = 0; m < args.rows; ++m) {
      Isa::store(acc + m * Isa::kRows, Isa::zero());
    }
    for (int64_t left = args.quantized->blocks; left > 0; left -= F::kRecordBlocks) {
      Record<F> record;
      load_record<F>(at.record, group, &record);
#pragma GCC unroll 1
      for (int i = 0; i < F::kRecordBlocks; ++i) {
        const Block<F> b = load_block<F>(at.low, at.high, record, group, i);
        for (int64_t m = 0; m < args.rows; ++m) {
          float* sum = acc + m * Isa::kRows;
          Isa::store(sum, add_block(b, at.a, m, Isa::load_float(sum)));
        }
        at.next();
      }
      at.record += Cursor<kFormat>::kGeometry.scales;
    }
    for (int64_t m = 0; m < args.rows; ++m) {
      store_outputs(args, m, first, Isa::load_float(acc + m * Isa::kRows));
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
