// The interleaved layout of block-quantized matrices (docs/kernels.md, "Products").
//
// Rows are padded to tiles of 16; a tile is cut along K into blocks of 32 columns. Three planes
// follow each other, each holding tile after tile, block after block:
//   low     4 bits a code (all 8 of Q8_0; both of Q2_K; the low 2 of Q3_K's 3)
//   high    the remaining 1 or 2 bits of 5- and 6-bit codes, the third of Q3_K
//   scales  per block, or per 8 blocks for the K formats and IQ4_XS: for each field of the file's
//           block header, 16 rows side by side
// Inside a block, k-group g is columns 4g .. 4g+3. A vector is 64 bytes: byte 4r + j belongs to row
// r and column 4g + j of the groups that share the vector, so 32 (64) bytes feed 8 (16) output rows
// with no sums across lanes.
//   8 bits: vector g                        4 bits: vector g % 4, nibble g / 4
//   2 bits: vector g / 4, bits 2 (g % 4)    1 bit:  one vector, bit g
// The bytes of a full tile are as many as in the file, and every value is kept.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace pelton::kernels {

inline constexpr int kTileRows = 16;
inline constexpr int kBlockColumns = 32;

// Bytes that one tile takes in each plane.
struct PackedGeometry {
  int low = 0;           // per block
  int high = 0;          // per block
  int scales = 0;        // per scale_blocks blocks
  int scale_blocks = 1;  // blocks that share one scale record
};

constexpr PackedGeometry packed_geometry(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ4_0:
    case WeightFormat::kIQ4_NL:
      return {256, 0, 32, 1};
    case WeightFormat::kQ4_1:
      return {256, 0, 64, 1};
    case WeightFormat::kQ5_0:
      return {256, 64, 32, 1};
    case WeightFormat::kQ5_1:
      return {256, 64, 64, 1};
    case WeightFormat::kQ8_0:
      return {512, 0, 32, 1};
    case WeightFormat::kMXFP4:
      return {256, 0, 16, 1};
    case WeightFormat::kQ2_K:
      return {128, 0, 320, 8};
    case WeightFormat::kQ3_K:
      return {128, 64, 224, 8};
    case WeightFormat::kQ4_K:
      return {256, 0, 256, 8};
    case WeightFormat::kQ5_K:
      return {256, 64, 256, 8};
    case WeightFormat::kQ6_K:
      return {256, 128, 288, 8};
    case WeightFormat::kIQ4_XS:
      return {256, 0, 128, 8};
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
    case WeightFormat::kCount:
      break;
  }
  return {};
}

// Where the planes of a matrix begin. Plane sizes are whole cache lines wherever a tile's are.
struct PackedPlanes {
  int64_t tiles = 0;
  int64_t blocks = 0;  // along K
  size_t high_offset = 0;
  size_t scales_offset = 0;
  size_t bytes = 0;
};

inline PackedPlanes packed_planes(WeightFormat format, int64_t rows, int64_t columns) {
  const PackedGeometry g = packed_geometry(format);
  PackedPlanes p;
  p.tiles = (rows + kTileRows - 1) / kTileRows;
  p.blocks = columns / kBlockColumns;
  const auto tile_blocks = static_cast<size_t>(p.tiles * p.blocks);
  p.high_offset = tile_blocks * static_cast<size_t>(g.low);
  p.scales_offset = p.high_offset + tile_blocks * static_cast<size_t>(g.high);
  p.bytes = p.scales_offset +
            tile_blocks / static_cast<size_t>(g.scale_blocks) * static_cast<size_t>(g.scales);
  return p;
}

}  // namespace pelton::kernels
