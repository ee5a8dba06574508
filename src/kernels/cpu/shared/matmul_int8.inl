// Products of 8-bit activation rows with packed weights: the loops over a tile. Included inside an
// ISA level's unnamed namespace, after its Isa, the formats, and
//   Record<F>, load_record: the decoded scales of one record (one block, or eight)
//   Block<F>, load_block:   one block of codes in registers
//   add_block:              acc += that block times row m of a block of activations
//   store_outputs:          the epilogue
// An accumulator meets the blocks in order whatever the number of rows.

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
