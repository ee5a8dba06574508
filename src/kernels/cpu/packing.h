// Packing into the interleaved layout and reading it back, for every level: the layout is common.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/packed_layout.h"
#include "kernels/params/matmul.h"

namespace pelton::kernels {

// Rewrites tiles [first_tile, last_tile) of a block-quantized matrix (the file's rows at `source`)
// into the planes of `out`. Rows beyond the last are zero.
void pack_tiles(WeightFormat format, int64_t rows, int64_t columns, const std::byte* source,
                std::byte* out, int64_t first_tile, int64_t last_tile);

// One 32-column block of one tile, decoded: value = scale * code - minimum.
struct DecodedBlock {
  int16_t codes[kTileRows][kBlockColumns];
  float scales[2][kTileRows];  // of columns 0..15 and 16..31
  float minima[2][kTileRows];
};
void decode_packed_block(const WeightMatrix& weight, int64_t tile, int64_t block,
                         DecodedBlock* out);

// Columns [0, weight.columns) of one row, in either layout.
void dequantize_weight_row(const WeightMatrix& weight, int64_t row, float* out);

}  // namespace pelton::kernels
