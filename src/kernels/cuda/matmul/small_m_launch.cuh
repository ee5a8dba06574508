// Launches of small_m's kernel, one file a format: they are large to compile.
#pragma once

#include <algorithm>

#include "kernels/cuda/common/tile_launch.h"
#include "kernels/cuda/matmul/small_m_kernel.cuh"
#include "kernels/cuda/matmul/small_m_launch.h"

namespace pelton::kernels::cuda {

// The most tiles that any block multiplies in one pass.
inline int small_m_most_tiles(int units, int clusters, bool silu, int tiles) {
  const int per_pass = silu ? tiles / 2 : tiles;
  int most = 1;
  for (const int count : {units / clusters, (units + clusters - 1) / clusters}) {
    const int passes = std::max(1, (count + per_pass - 1) / per_pass);
    most = std::max(most, (count + passes - 1) / passes);
  }
  return silu ? 2 * most : most;
}

// Whether two blocks share a multiprocessor: decoding weights keeps a block's warps waiting for one
// another, and a product of several passes has more to gain from twice the warps than from room for
// the next one's weights. Part of the numerics, so no property of m.
inline bool small_m_is_paired(const SmallMArgs& a) {
  return a.format != SmallMWeight::kBF16 && small_m_split(a) == 1 &&
         small_m_units(a) >= 3 * 2 * kSmallMMultiprocessors;
}

// Blocks, or pairs of them, that share the units.
inline int small_m_clusters(const SmallMArgs& a, int split) {
  const int resident = small_m_is_paired(a) ? 2 * kSmallMMultiprocessors : kSmallMMultiprocessors;
  return std::min(small_m_units(a), resident / split);
}

// Of all rows of x, with what fragments read behind the last.
inline uint32_t small_m_norm_bytes(int m, int k_boxes, int box_inputs) {
  return static_cast<uint32_t>((m * k_boxes * box_inputs * 2 + 1023) / 1024 * 1024 + 1024);
}

template <class S, int split, bool normed>
cudaError_t launch_small_m_shape(const SmallMArgs& a, cudaStream_t stream) {
  SmallMParams p = {};
  if constexpr (normed) {
    p.x_rows = static_cast<const float*>(a.x);
    p.x_stride = a.x_stride;
    p.norm_weight = a.norm_weight;
    p.norm_eps = a.norm_eps;
  } else {
    TileMap x;
    x.base = a.x;
    x.size[0] = static_cast<uint64_t>(a.k);
    x.size[1] = static_cast<uint64_t>(a.m);
    x.stride_bytes[1] = static_cast<uint64_t>(a.x_stride) * 2;
    x.box_rows = static_cast<uint32_t>(a.m);
    if (cudaError_t e = encode_tile_map(x, &p.x_map); e != cudaSuccess) return e;
  }
  if constexpr (!S::kIsInt4) {
    TileMap w;
    w.base = a.weight;
    w.element_bytes = S::kIsBF16 ? 2 : 1;
    w.size[0] = static_cast<uint64_t>(a.k);
    w.size[1] = static_cast<uint64_t>(a.n);
    w.stride_bytes[1] = static_cast<uint64_t>(a.k) * static_cast<uint64_t>(w.element_bytes);
    w.box_rows = 16;
    if (cudaError_t e = encode_tile_map(w, &p.weight_map); e != cudaSuccess) return e;
  }
  p.blocks = static_cast<const std::byte*>(a.weight);
  p.scale = a.scale;
  p.bias = a.bias;
  p.residual = a.residual;
  p.out = a.out;
  p.out_stride = a.out_stride;
  p.m = a.m;
  p.n = a.n;
  p.k = a.k;
  p.units = small_m_units(a);
  p.k_boxes = (a.k + S::kBoxInputs - 1) / S::kBoxInputs;
  p.silu = a.epilogue == SmallMEpilogue::kSiluMul;
  p.out_f32 = a.out_f32;
  p.paired = small_m_is_paired(a);
  const int clusters = small_m_clusters(a, split);
  const int tiles = small_m_most_tiles(p.units, clusters, p.silu, S::kTiles);
  p.tile_bytes = static_cast<uint32_t>(tiles * S::kTileBytes);
  p.norm_bytes = normed ? small_m_norm_bytes(a.m, p.k_boxes, S::kBoxInputs) : 0;
  p.depth = S::depth((normed ? 0 : S::kXBytes) + tiles * S::kTileBytes,
                     S::kBudget - static_cast<int>(p.norm_bytes));
  LaunchShape shape;
  shape.grid = static_cast<unsigned>(clusters * split);
  shape.block = S::kThreads;
  // The same for every product: between kernels that want different shares of L1, the chip waits.
  shape.shared_bytes = static_cast<unsigned>(S::kBudget);
  shape.cluster = split;
  shape.programmatic = a.programmatic;
  return launch_programmatic(small_m_kernel<S, split, normed>, p, shape, stream);
}

template <SmallMWeight format, int tiles, int split>
cudaError_t launch_small_m_eight(const SmallMArgs& a, cudaStream_t stream) {
  using S = SmallMShape<format, 8, tiles>;
  return a.norm_weight != nullptr ? launch_small_m_shape<S, split, true>(a, stream)
                                  : launch_small_m_shape<S, split, false>(a, stream);
}

template <SmallMWeight format, int columns>
cudaError_t launch_small_m_columns(const SmallMArgs& a, cudaStream_t stream) {
  using S = SmallMShape<format, columns, small_m_tiles(columns)>;
  return small_m_split(a) == 2 ? launch_small_m_shape<S, 2, false>(a, stream)
                               : launch_small_m_shape<S, 1, false>(a, stream);
}

template <SmallMWeight format>
cudaError_t launch_small_m_format(const SmallMArgs& a, cudaStream_t stream) {
  if (a.m > 16) return launch_small_m_columns<format, 32>(a, stream);
  if (a.m > 8) return launch_small_m_columns<format, 16>(a, stream);
  constexpr int kTiles = small_m_tiles(8);
  if (small_m_split(a) == 2) return launch_small_m_eight<format, kTiles, 2>(a, stream);
  const bool silu = a.epilogue == SmallMEpilogue::kSiluMul;
  if (small_m_most_tiles(small_m_units(a), small_m_clusters(a, 1), silu, kTiles) <= 2) {
    return launch_small_m_eight<format, 2, 1>(a, stream);
  }
  return launch_small_m_eight<format, kTiles, 1>(a, stream);
}

}  // namespace pelton::kernels::cuda
