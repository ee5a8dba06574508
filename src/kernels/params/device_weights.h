// How a device keeps weights that were quantized at load: layouts, sizes, and the conversion from
// float rows, which runs on the host. A matrix is cut into tiles of whole rows.
//
// kFp8Channels, kInt8Channels: codes [rows][columns] of one byte, then (at a multiple of 64 bytes)
//   one f32 scale a row: value = code * scale. E4M3 codes reach 448, int8 codes 127 in a row's
//   largest magnitude.
// kInt4Groups: tiles of 16 rows in blocks of 128 columns with an f16 scale for each row of a block,
//   as kernels/cuda/matmul/int4_pack.h says: value = (code - 8) * scale, the group's largest
//   magnitude having code 0 or 15.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/params/matmul.h"

namespace pelton::kernels {

const char* weight_layout_name(WeightLayout layout);  // "fp8", "int8", "int4"; "" for others

// Whether rows of so many columns can be kept so; others stay BF16.
bool fits_device_layout(WeightLayout layout, int64_t columns);
size_t device_weight_bytes(WeightLayout layout, int64_t rows, int64_t columns);
// Rows of one tile, and its bytes: scales of int4 are among them, scales of channels are not.
int64_t device_tile_rows(WeightLayout layout);
size_t device_tile_bytes(WeightLayout layout, int64_t columns);
// Where a matrix's channel scales begin.
size_t channel_scales_offset(int64_t rows, int64_t columns);

// Quantizes one tile, rounding to nearest: `values` are its rows of `columns` floats, the last tile
// of a matrix may have fewer than device_tile_rows. `scale` receives the channel's scale (one row;
// not of int4). False, with nothing to be relied on in `out`, where a value is not finite. Rows
// whose scale would be no normal number become zeros.
bool quantize_tile(WeightLayout layout, int64_t columns, std::span<const float> values,
                   std::span<std::byte> out, float* scale);

// Random weights, made where they lie. Element i of the matrix, rows end to end, is spread * u_i,
// with u_i = signed_unit(counter_bits(key, i / 4), i % 4) (base/splitmix.h): rounded to BF16
// (kSource), or as the code nearest to u_i * 448 (FP8), 127 (int8) or 7 (int4) with spread divided
// by that number as every scale.
struct RandomWeightsParams {
  WeightLayout layout = WeightLayout::kSource;
  uint64_t key = 0;
  float spread = 0;
  std::byte* out = nullptr;  // codes or numbers of these rows; a whole number of tiles
  float* scale = nullptr;    // [rows], of layouts with a scale a channel
  int64_t rows = 0;
  int64_t columns = 0;
};

// One row of a matrix in such a layout, as floats.
void dequantize_device_row(const WeightMatrix& weight, int64_t row, float* out);

}  // namespace pelton::kernels
