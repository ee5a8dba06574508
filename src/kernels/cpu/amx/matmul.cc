// Products of 8-bit activation rows with packed weights on AMX tiles, for calls of 16 rows and
// more.
//
// Half a packed block is the right operand as it lies: four tile rows of 64 bytes, four columns of
// K a row for each of 16 outputs. Sixteen activation rows give 16 x 16 exact integer dots a half,
// which then take the AVX-512 level's float steps in its order: every output has that level's bits.
// Fewer rows and rows beyond a multiple of 16 go through that level's code.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/levels.h"

namespace pelton::kernels::amx {

void fill_matmul_bf16(MatmulKernels& kernels);

namespace {

#include "kernels/cpu/shared/matmul_formats.inl"
#include "kernels/cpu/shared/matmul_isa_512.inl"

static_assert(Isa::kGroups == 1);

#include "kernels/cpu/shared/matmul_vnni_512.inl"

static_assert(Isa::kRows == kTileRows);

#include "kernels/cpu/shared/matmul_int8.inl"

constexpr int kAmxRows = 16;

// For half h of a block, tile h: dots [16][16] int32; 2 + h: activations [16][16]; 4 + h: weights
// [4][64].
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, kHalfColumns, kHalfColumns, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 4, 4};
};

struct alignas(64) Dots {
  int32_t values[kHalvesPerBlock][kAmxRows][kTileRows];
};

[[gnu::always_inline]] inline void block_dots(const int8_t* activations, Dots* out) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_loadd(2, activations, kBlockColumns);
  _tile_loadd(3, activations + kHalfColumns, kBlockColumns);
  _tile_dpbsud(0, 2, 4);
  _tile_dpbsud(1, 3, 5);
  _tile_stored(0, out->values[0], 64);
  _tile_stored(1, out->values[1], 64);
}

// Row m of a block, which is row `row` of the dots.
template <class F>
[[gnu::always_inline]] inline __m512 add_row(const Block<F>& b, const BlockActivations& a,
                                             int64_t m, const Dots& from, int row, __m512 acc) {
  HalfDots<Isa> dots;
  for (int h = 0; h < kHalvesPerBlock; ++h) {
    dots.half[h] = _mm512_load_si512(from.values[h][row]);
    if constexpr (kHasOffset<F>) {
      dots.half[h] = _mm512_add_epi32(dots.half[h], offset_of<F>(a, m, h));
    }
  }
  return add_dots(b, dots, a, m, acc);
}

template <WeightFormat kFormat>
void tile_amx(const ProductArgs& args, int64_t tile) {
  using F = Format<Isa, kFormat>;
  Cursor<kFormat> at(args, tile);
  alignas(64) float acc[kMaxProductRows * kTileRows];
  alignas(64) uint8_t codes[8 * 64];
  Dots dots;
  for (int64_t m = 0; m < args.rows; ++m) Isa::store(acc + m * kTileRows, Isa::zero());
  const int64_t full = args.rows / kAmxRows * kAmxRows;
  for (int64_t left = args.quantized->blocks; left > 0; left -= F::kRecordBlocks) {
    Record<F> record;
    load_record<F>(at.record, 0, &record);
#pragma GCC unroll 1
    for (int i = 0; i < F::kRecordBlocks; ++i) {
      const Block<F> b = load_block<F>(at.low, at.high, record, 0, i);
      for (int g = 0; g < 8; ++g) _mm512_store_si512(codes + 64 * g, b.w[g]);
      _tile_loadd(4, codes, 64);
      _tile_loadd(5, codes + 4 * 64, 64);
      for (int64_t m = 0; m < full; m += kAmxRows) {
        block_dots(at.a.codes + kBlockColumns * m, &dots);
        for (int row = 0; row < kAmxRows; ++row) {
          float* sum = acc + (m + row) * kTileRows;
          Isa::store(sum, add_row(b, at.a, m + row, dots, row, Isa::load_float(sum)));
        }
      }
      for (int64_t m = full; m < args.rows; ++m) {
        float* sum = acc + m * kTileRows;
        Isa::store(sum, add_block(b, at.a, m, Isa::load_float(sum)));
      }
      at.next();
    }
    at.record += Cursor<kFormat>::kGeometry.scales;
  }
  for (int64_t m = 0; m < args.rows; ++m) {
    store_outputs(args, m, tile * kTileRows, Isa::load_float(acc + m * kTileRows));
  }
}

template <WeightFormat kFormat>
void product_amx(const ProductArgs& args) {
  if (args.rows < kAmxRows) return product<kFormat>(args);
  const TileConfig config;
  _tile_loadconfig(&config);
  for (int64_t tile = args.first_tile; tile < args.last_tile; ++tile) {
    tile_amx<kFormat>(args, tile);
  }
  _tile_release();
}

template <WeightFormat... kFormats>
void fill(MatmulKernels& kernels) {
  ((kernels.int8[static_cast<int>(kFormats)] = product_amx<kFormats>), ...);
}

}  // namespace

void fill_matmul(MatmulKernels& kernels) {
  fill_matmul_bf16(kernels);
  using enum WeightFormat;
  fill<kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL, kIQ4_XS,
       kMXFP4>(kernels);
}

}  // namespace pelton::kernels::amx
