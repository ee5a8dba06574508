// Products of BF16 weights, in place, with activations split into two BF16 numbers, on AMX tiles.
//
// Sixteen weight rows are the left operand as they lie in the file; a group of up to sixteen
// activation rows is the right one, 32 columns of K at a time: first its high parts, then its low
// ones, into one f32 accumulator. An output is a function of its own row and column alone, so its
// bits do not depend on how many rows share the call.
// Bytes moved: the matrix once for every four groups of rows, from the second-level cache after the
// first.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/levels.h"

namespace pelton::kernels::amx {

void fill_matmul_bf16(MatmulKernels& kernels);

namespace {

constexpr int kStep = kSplitColumns;  // columns of K that one tile product covers
constexpr int kPairs = kStep / 2;
constexpr int kMaxGroups = 4;

// x = high + low to 16 bits; a value that is not finite is all in `high`.
void split_step(const float* x, int64_t group_rows, uint16_t* high, uint16_t* low) {
  for (int half = 0; half < 2; ++half) {
    const __m512 v = _mm512_loadu_ps(x + 16 * half);
    const __m256i top = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
    const __m512 rounded = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(top), 16));
    const __mmask16 finite =
        _mm512_cmp_ps_mask(_mm512_abs_ps(rounded), _mm512_set1_ps(__builtin_inff()), _CMP_LT_OQ);
    const __m512 rest = _mm512_maskz_sub_ps(finite, v, rounded);
    alignas(32) uint32_t tops[8], rests[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(tops), top);
    _mm256_store_si256(reinterpret_cast<__m256i*>(rests),
                       reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(rest)));
    for (int pair = 0; pair < 8; ++pair) {
      const int64_t at = (8 * half + pair) * group_rows * 2;
      __builtin_memcpy(high + at, &tops[pair], sizeof(uint32_t));
      __builtin_memcpy(low + at, &rests[pair], sizeof(uint32_t));
    }
  }
}

void split(const float* x, int64_t x_stride, int64_t first, int64_t last, const SplitRows& out) {
  for (int64_t row = first; row < last; ++row) {
    const int64_t group = row / kSplitGroupRows;
    const int64_t rows = split_group_rows(out.rows, group);
    uint16_t* base = out.parts + group * kSplitGroupRows * out.columns * 2;
    for (int64_t k = 0; k < out.columns; k += kStep) {
      uint16_t* high = base + k * rows * 2 + row % kSplitGroupRows * 2;
      split_step(x + row * x_stride + k, rows, high, high + kStep * rows);
    }
  }
}

// Tiles 0..3: outputs [weight rows][group rows] f32; 4: weights; 5, 6: the parts of a full group
// and of the last, narrower one.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  TileConfig(int64_t weight_rows, int64_t last_group_rows) {
    const auto last_bytes = static_cast<uint16_t>(4 * last_group_rows);
    for (int t = 0; t < 5; ++t) {
      row_bytes[t] = 64;
      rows[t] = static_cast<uint8_t>(weight_rows);
    }
    row_bytes[3] = last_bytes;
    row_bytes[5] = 64;
    row_bytes[6] = last_bytes;
    rows[5] = rows[6] = kPairs;
  }
};

// Tile += weights * one part of a step. (The intrinsics take literal tile numbers only.)
template <int kTile>
[[gnu::always_inline]] inline void add_part(const uint16_t* part, int64_t rows) {
  if constexpr (kTile == 3) {
    _tile_loadd(6, part, 4 * rows);
    _tile_dpbf16ps(3, 4, 6);
  } else {
    _tile_loadd(5, part, 64);
    if constexpr (kTile == 0) _tile_dpbf16ps(0, 4, 5);
    if constexpr (kTile == 1) _tile_dpbf16ps(1, 4, 5);
    if constexpr (kTile == 2) _tile_dpbf16ps(2, 4, 5);
  }
}
template <int kTile>
[[gnu::always_inline]] inline void add_step(const uint16_t* parts, int64_t rows) {
  add_part<kTile>(parts, rows);
  add_part<kTile>(parts + kStep * rows, rows);
}

// Writes [weight_rows][rows] sums as outputs of rows `first_row` on.
void store_group(const ProductArgs& args, int64_t tile, int64_t weight_rows, int64_t first_row,
                 int64_t rows, const float* sums) {
  const int64_t first = tile * kTileRows;
  for (int64_t m = 0; m < rows; ++m) {
    float* out = args.out + (first_row + m) * args.out_stride + first;
    for (int64_t r = 0; r < weight_rows; ++r) {
      float value = sums[r * kSplitGroupRows + m];
      if (args.bias != nullptr) value += args.bias[first + r];
      out[r] = args.accumulate ? out[r] + value : value;
    }
  }
}

// Groups [first, first + full) of sixteen rows in tiles 0 .. full - 1, and with `has_last` one more
// in tile 3.
template <int kFull, bool kLast>
void product_groups(const ProductArgs& args, int64_t tile, int64_t weight_rows, int64_t first) {
  const SplitRows& x = *args.split;
  const uint8_t* weights = args.low + tile * kTileRows * args.k * 2;
  const auto parts = [&](int64_t group) {
    return x.parts + group * kSplitGroupRows * x.columns * 2;
  };
  const int64_t last_rows = split_group_rows(x.rows, first + kFull);
  if constexpr (kFull > 0) _tile_zero(0);
  if constexpr (kFull > 1) _tile_zero(1);
  if constexpr (kFull > 2) _tile_zero(2);
  if constexpr (kLast) _tile_zero(3);
  for (int64_t k = 0; k < args.k; k += kStep) {
    _tile_loadd(4, weights + 2 * k, 2 * args.k);
    if constexpr (kFull > 0) add_step<0>(parts(first) + k * kSplitGroupRows * 2, 16);
    if constexpr (kFull > 1) add_step<1>(parts(first + 1) + k * kSplitGroupRows * 2, 16);
    if constexpr (kFull > 2) add_step<2>(parts(first + 2) + k * kSplitGroupRows * 2, 16);
    if constexpr (kLast) add_step<3>(parts(first + kFull) + k * last_rows * 2, last_rows);
  }
  alignas(64) float sums[kTileRows * kSplitGroupRows];
  const auto store = [&](int64_t group, int64_t rows) {
    store_group(args, tile, weight_rows, group * kSplitGroupRows, rows, sums);
  };
  if constexpr (kFull > 0) {
    _tile_stored(0, sums, 64);
    store(first, 16);
  }
  if constexpr (kFull > 1) {
    _tile_stored(1, sums, 64);
    store(first + 1, 16);
  }
  if constexpr (kFull > 2) {
    _tile_stored(2, sums, 64);
    store(first + 2, 16);
  }
  if constexpr (kLast) {
    _tile_stored(3, sums, 64);
    store(first + kFull, last_rows);
  }
}

void product(const ProductArgs& args) {
  const SplitRows& x = *args.split;
  const int64_t groups = (x.rows + kSplitGroupRows - 1) / kSplitGroupRows;
  int64_t configured = 0;
  for (int64_t tile = args.first_tile; tile < args.last_tile; ++tile) {
    const int64_t left = args.n - tile * kTileRows;
    const int64_t weight_rows = left < kTileRows ? left : kTileRows;
    if (weight_rows != configured) {
      const TileConfig config(weight_rows, split_group_rows(x.rows, groups - 1));
      _tile_loadconfig(&config);
      configured = weight_rows;
    }
    // The last group, narrower or not, goes through tile 3.
    for (int64_t first = 0; first < groups; first += kMaxGroups) {
      switch (groups - first) {
        case 1:
          product_groups<0, true>(args, tile, weight_rows, first);
          break;
        case 2:
          product_groups<1, true>(args, tile, weight_rows, first);
          break;
        case 3:
          product_groups<2, true>(args, tile, weight_rows, first);
          break;
        default:
          product_groups<3, true>(args, tile, weight_rows, first);
          break;
      }
    }
  }
  _tile_release();
}

}  // namespace

void fill_matmul_bf16(MatmulKernels& kernels) {
  static_assert(kMaxProductRows <= kMaxGroups * kSplitGroupRows);
  kernels.split = split;
  kernels.split_product[static_cast<int>(WeightFormat::kBF16)] = product;
}

}  // namespace pelton::kernels::amx
