// Launches of wide_m's kernel, one file a format: they are large to compile.
#pragma once

#include "kernels/cuda/common/tile_launch.h"
#include "kernels/cuda/matmul/wide_m_kernel.cuh"
#include "kernels/cuda/matmul/wide_m_launch.h"

namespace pelton::kernels::cuda {

template <SmallMWeight format, int columns, int groups>
cudaError_t launch_wide_m_shape(const WideMArgs& args, int split, cudaStream_t stream) {
  using S = WideMShape<format, columns, groups>;
  const SmallMArgs& a = args.product;
  WideMParams p = {};
  TileMap tile;
  tile.base = a.x;
  tile.size[0] = static_cast<uint64_t>(a.k);
  tile.size[1] = static_cast<uint64_t>(a.m);
  tile.element_bytes = S::kIsFp8 ? 1 : 2;
  tile.stride_bytes[1] =
      static_cast<uint64_t>(a.x_stride) * static_cast<uint64_t>(tile.element_bytes);
  tile.box_rows = static_cast<uint32_t>(a.m);
  if (cudaError_t e = encode_tile_map(tile, &p.x_map); e != cudaSuccess) return e;
  if constexpr (S::kIsInt4) {
    BlockMap blocks;
    blocks.base = a.weight;
    blocks.block_bytes = kInt4BlockBytes;
    blocks.columns = static_cast<uint64_t>(a.k / kInt4Group);
    blocks.rows = static_cast<uint64_t>((a.n + kInt4TileRows - 1) / kInt4TileRows);
    blocks.box_rows = S::kGroupRows / kInt4TileRows;
    if (cudaError_t e = encode_block_map(blocks, &p.weight_map); e != cudaSuccess) return e;
  } else {
    tile.base = a.weight;
    tile.element_bytes = S::kIsBF16 ? 2 : 1;
    tile.size[1] = static_cast<uint64_t>(a.n);
    tile.stride_bytes[1] = static_cast<uint64_t>(a.k) * static_cast<uint64_t>(tile.element_bytes);
    tile.box_rows = S::kGroupRows;
    if (cudaError_t e = encode_tile_map(tile, &p.weight_map); e != cudaSuccess) return e;
  }
  p.scale = a.scale;
  p.bias = a.bias;
  p.residual = a.residual;
  p.out = a.out;
  p.out_stride = a.out_stride;
  p.x_scale = args.x_scale;
  p.m = a.m;
  p.n = a.n;
  p.silu = a.epilogue == SmallMEpilogue::kSiluMul;
  p.out_f32 = a.out_f32;
  const int width = p.silu ? S::kTileRows / 2 : S::kTileRows;
  const int tiles = ((p.silu ? a.n / 2 : a.n) + width - 1) / width;
  p.k_boxes = (a.k + S::kBoxInputs - 1) / S::kBoxInputs;
  p.split = split;
  LaunchShape shape;
  shape.grid = static_cast<unsigned>(tiles * p.split);
  shape.cluster = static_cast<unsigned>(p.split);
  shape.block = S::kThreads;
  shape.shared_bytes = S::kSharedBytes;
  shape.programmatic = a.programmatic;
  return launch_programmatic(wide_m_kernel<format, columns, groups>, p, shape, stream);
}

template <SmallMWeight format>
cudaError_t launch_wide_m_format(const WideMArgs& args, cudaStream_t stream) {
  using S = WideMShape<format, 128, 2>;
  const SmallMArgs& a = args.product;
  const int tiles = (a.n + S::kTileRows - 1) / S::kTileRows;
  const int split = wide_m_split(tiles, (a.k + S::kBoxInputs - 1) / S::kBoxInputs, !S::kIsDirect);
  if (a.m <= 32) return launch_wide_m_shape<format, 32, 2>(args, split, stream);
  if (a.m <= 64) return launch_wide_m_shape<format, 64, 2>(args, split, stream);
  if constexpr (!S::kIsDirect) {
    if (wide_m_is_tall(tiles, split))
      return launch_wide_m_shape<format, 128, 4>(args, split, stream);
  }
  return launch_wide_m_shape<format, 128, 2>(args, split, stream);
}

}  // namespace pelton::kernels::cuda
