// The kernel behind gemm.h; see there for what it computes and how the work is cut.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/common/wgmma_s8.cuh"
#include "kernels/cuda/matmul/gemm.h"

namespace pelton::kernels::cuda {

// What becomes of a finished tile. The common ways have code of their own: straight-line code that
// decides for each group of columns is too long for the instruction cache, and costs more time than
// its stores.
enum class GemmFinish : int32_t {
  kAny,
  kBF16,     // out = product, no bias
  kF32,      // the same
  kSiluMul,  // out = silu(gate) * up, bf16, no bias
  kAdd,      // out += product, f32, no bias
};

// What becomes of the matrix unit's sum over a box of 128 of k.
enum class GemmPromotion : int32_t {
  kNone,    // it stays there until K ends
  kSums,    // it is added in FP32 registers
  kScaled,  // the same, with the scales of the box
};

struct GemmParams {
  CUtensorMap x_map;       // [m][k] in boxes of block_rows
  CUtensorMap weight_map;  // [n][k] in boxes of half a tile's columns
  const float* x_scale;
  const float* w_scale;
  const float* bias;
  const float* residual;
  int64_t residual_stride;
  void* out;
  int64_t out_stride;
  int32_t m;
  int32_t n;
  int32_t k_boxes;      // with promotion an even number: a box outside of K is of zeros
  int32_t scale_boxes;  // that have scales, without that one
  // Rows of a tile that are rows of x, a multiple of 8: the rows are dealt evenly, as the copy
  // engine takes longer for rows outside of x than for rows that it reads. What the others multiply
  // is old and not stored.
  int32_t block_rows;
  int32_t row_tiles;  // of a cluster's rows
  int32_t column_tiles;
  int32_t cluster;
  int32_t splits;  // of K; the sums of each lie below one another in out, m rows each
  GemmFinish finish;
  bool block_scales;
  bool silu;
  bool out_f32;
};

// What the matrix unit sums in.
template <GemmType type>
using GemmSum = std::conditional_t<type == GemmType::kInt8, int, float>;

template <GemmType type, int columns>
struct GemmShape {
  static constexpr int kRows = 128;
  static constexpr int kThreads = 384;  // a producer and two consumer warpgroups
  static constexpr int kConsumerWarps = 8;
  static constexpr int kBoxElements = type == GemmType::kBF16 ? 64 : 128;
  static constexpr int kXBytes = kRows * 128;
  static constexpr int kHalf = columns / 2;
  static constexpr int kHalfBytes = kHalf * 128;
  static constexpr int kStageBytes = kXBytes + 2 * kHalfBytes;
  static constexpr int kDepth = 192 * 1024 / kStageBytes;
  static constexpr int kBarriersAt = kDepth * kStageBytes;
  static constexpr int kFactorsAt = kBarriersAt + 2 * kDepth * 8;
  static constexpr int kFactorFloats = 2 * columns;  // scale and bias of a tile's columns
  static constexpr int kSharedBytes = 1024 + kFactorsAt + 2 * kFactorFloats * 4;
};

// Where an output tile lies. The flat order walks rectangles of kGroup row tiles.
struct GemmTile {
  int row;     // first row of the cluster
  int column;  // first column of W; with silu, of its gate half

  template <int columns>
  static __device__ __forceinline__ GemmTile at(const GemmParams& p, int index) {
    constexpr int kGroup = 8;
    const int per_group = kGroup * p.column_tiles;
    const int first = index / per_group * kGroup;
    const int size = min(kGroup, p.row_tiles - first);
    const int rest = index % per_group;
    GemmTile tile;
    tile.row = (first + rest % size) * p.block_rows * p.cluster;
    tile.column = rest / size * (p.silu ? columns / 2 : columns);
    return tile;
  }
};

// What is done of a tile at a time: with `cut` a share of its K.
template <bool cut>
struct GemmWork {
  int tile;
  int split = 0;
  int first_box = 0;
  int end_box;

  static __device__ __forceinline__ int count(const GemmParams& p) {
    return p.row_tiles * p.column_tiles * (cut ? p.splits : 1);
  }
  __device__ __forceinline__ GemmWork(const GemmParams& p, int index)
      : tile(index), end_box(p.k_boxes) {
    if constexpr (cut) {
      const int tiles = p.row_tiles * p.column_tiles;
      tile = index % tiles;
      split = index / tiles;
      first_box = split * p.k_boxes / p.splits;
      end_box = (split + 1) * p.k_boxes / p.splits;
    }
  }
};

template <GemmType type, int columns, bool cut>
__device__ __forceinline__ void produce_operands(const GemmParams& p, uint32_t ring, uint32_t full,
                                                 uint32_t empty) {
  using S = GemmShape<type, columns>;
  const uint64_t policy = policy_evict_normal();
  const int rank = p.cluster == 2 ? static_cast<int>(cluster_rank()) : 0;
  const int clusters = static_cast<int>(gridDim.x) / p.cluster;
  const int count = GemmWork<cut>::count(p);
  const int second_half = p.silu ? p.n / 2 : S::kHalf;
  const uint32_t box_bytes = 128 * static_cast<uint32_t>(p.block_rows) + 2 * S::kHalfBytes;
  int stage = 0;
  uint32_t parity = 1;
  for (int index = static_cast<int>(blockIdx.x) / p.cluster; index < count; index += clusters) {
    const GemmWork<cut> work(p, index);
    const GemmTile tile = GemmTile::at<columns>(p, work.tile);
    for (int box = work.first_box; box < work.end_box; ++box) {
      barrier_wait(empty + 8 * stage, parity);
      const uint32_t barrier = full + 8 * stage;
      const uint32_t x_at = ring + stage * S::kStageBytes;
      const uint32_t w_at = x_at + S::kXBytes;
      const int inputs = box * S::kBoxElements;
      barrier_arrive_expect(barrier, box_bytes);
      tile_copy_2d(x_at, &p.x_map, inputs, tile.row + rank * p.block_rows, barrier, policy);
      if (p.cluster == 2) {
        tile_copy_2d_multicast(w_at + rank * S::kHalfBytes, &p.weight_map, inputs,
                               tile.column + rank * second_half, barrier, 3, policy);
      } else {
        tile_copy_2d(w_at, &p.weight_map, inputs, tile.column, barrier, policy);
        tile_copy_2d(w_at + S::kHalfBytes, &p.weight_map, inputs, tile.column + second_half,
                     barrier, policy);
      }
      if (++stage == S::kDepth) {
        stage = 0;
        parity ^= 1;
      }
    }
  }
}

// Lane t of four holds word t of four groups; afterwards all four words of group t.
__device__ __forceinline__ void transpose_quad(uint32_t (&w)[4], int t) {
  const bool odd = (t & 1) != 0;
  const bool high = (t & 2) != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t got = __shfl_xor_sync(~0u, odd ? w[i] : w[i + 1], 1);
    w[i] = odd ? got : w[i];
    w[i + 1] = odd ? w[i + 1] : got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = __shfl_xor_sync(~0u, high ? w[i] : w[i + 2], 2);
    w[i] = high ? got : w[i];
    w[i + 2] = high ? w[i + 2] : got;
  }
}

__device__ __forceinline__ float silu_mul(float gate, float up) {
  constexpr float kLog2E = 1.4426950408889634f;
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(-kLog2E * gate));
  return __fdividef(gate, 1.0f + e) * up;
}

// Adds in memory, so that nothing waits for what was there; rounds once, as a sum in registers
// would.
__device__ __forceinline__ void add_pair(float* to, float a, float b) {
  asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(a), "f"(b)
               : "memory");
}

// Scales and biases of a tile's columns: read while the product is under way, one or two columns a
// thread, and shared by a warpgroup when it ends.
template <GemmType type, int columns>
struct ColumnFactors {
  static constexpr int kEach = columns / 128;
  float scale[kEach];
  float bias[kEach];

  __device__ __forceinline__ void load(const GemmParams& p, int first_column, int thread) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      int column = thread + 128 * i;
      column += first_column + (p.silu && column >= columns / 2 ? p.n / 2 - columns / 2 : 0);
      const bool is_scaled = type != GemmType::kBF16 && !p.block_scales && p.w_scale != nullptr;
      scale[i] = is_scaled && column < p.n ? p.w_scale[column] : 1.0f;
      bias[i] = p.bias != nullptr && column < p.n ? p.bias[column] : 0.0f;
    }
  }
  // `group`: of warps, for its barrier.
  __device__ __forceinline__ void share(float* factors, int thread, int group) const {
    named_sync(1 + group, 128);  // the last tile's have been read
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      factors[thread + 128 * i] = scale[i];
      factors[columns + thread + 128 * i] = bias[i];
    }
    named_sync(1 + group, 128);
  }
};

// A warp's 16 rows of a finished tile.
template <GemmType type, int columns>
struct GemmStore {
  const GemmParams& p;
  const float* factors;
  int row;  // of this lane; the other is 8 below
  int end_row;
  int t;
  float row_scale[2];

  // Before the product, so that nothing waits for the scales at its end.
  __device__ __forceinline__ GemmStore(const GemmParams& params, const float* shared_factors,
                                       int block_row, int place, int lane)
      : p(params),
        factors(shared_factors),
        row(block_row + place + lane / 4),
        end_row(min(params.m, block_row + params.block_rows)),
        t(lane % 4),
        row_scale{1.0f, 1.0f} {
    if (type != GemmType::kBF16 && !p.block_scales && p.x_scale != nullptr) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        row_scale[h] = row + 8 * h < end_row ? p.x_scale[row + 8 * h] : 0.0f;
    }
  }

  // Accumulators of a group of eight columns, scaled.
  __device__ __forceinline__ void scale(float (&v)[4], const GemmSum<type> (&d)[columns / 2],
                                        int group) const {
    float2 factor = make_float2(1.0f, 1.0f);
    if (type != GemmType::kBF16) {
      factor = *reinterpret_cast<const float2*>(factors + 8 * group + 2 * t);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      v[2 * h] = static_cast<float>(d[4 * group + 2 * h]);
      v[2 * h + 1] = static_cast<float>(d[4 * group + 2 * h + 1]);
      if (type != GemmType::kBF16) {
        v[2 * h] *= row_scale[h] * factor.x;
        v[2 * h + 1] *= row_scale[h] * factor.y;
      }
    }
  }

  template <bool silu>
  __device__ __forceinline__ void store_bf16_tile(const GemmSum<type> (&d)[columns / 2],
                                                  int first_column) const {
    constexpr int kGroups = silu ? columns / 16 : columns / 8;
    const int limit = (silu ? p.n / 2 : p.n) - first_column - 8 * t;
    auto* out = static_cast<__nv_bfloat16*>(p.out) + row * p.out_stride + first_column + 8 * t;
    const int64_t below = 8 * p.out_stride;
#pragma unroll
    for (int i = 0; i < kGroups; i += 4) {
      uint32_t words[2][4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float v[4];
        scale(v, d, i + j);
        if constexpr (silu) {
          float up[4];
          scale(up, d, i + j + kGroups);
#pragma unroll
          for (int e = 0; e < 4; ++e) v[e] = silu_mul(v[e], up[e]);
        }
        words[0][j] = pack_bf16x2(v[0], v[1]);
        words[1][j] = pack_bf16x2(v[2], v[3]);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        transpose_quad(words[h], t);
        if (8 * i < limit && row + 8 * h < end_row) {
          *reinterpret_cast<uint4*>(out + h * below + 8 * i) =
              make_uint4(words[h][0], words[h][1], words[h][2], words[h][3]);
        }
      }
    }
  }

  template <bool adds>
  __device__ __forceinline__ void store_f32_tile(const GemmSum<type> (&d)[columns / 2],
                                                 int first_column) const {
    const int limit = p.n - first_column;
    float* out = static_cast<float*>(p.out) + row * p.out_stride + first_column + 2 * t;
    const int64_t below = 8 * p.out_stride;
#pragma unroll
    for (int i = 0; i < columns / 8; ++i) {
      float v[4];
      scale(v, d, i);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (8 * i >= limit || row + 8 * h >= end_row) continue;
        float* at = out + h * below + 8 * i;
        if constexpr (adds) {
          add_pair(at, v[2 * h], v[2 * h + 1]);
        } else {
          *reinterpret_cast<float2*>(at) = make_float2(v[2 * h], v[2 * h + 1]);
        }
      }
    }
  }

  // Accumulators of a group of eight columns, scaled and with the bias.
  __device__ __forceinline__ void finish(float (&v)[4], const GemmSum<type> (&d)[columns / 2],
                                         int group) const {
    const int at = 8 * group + 2 * t;
    const float2 bias = *reinterpret_cast<const float2*>(factors + columns + at);
    float2 scale = make_float2(1.0f, 1.0f);
    if (type != GemmType::kBF16) scale = *reinterpret_cast<const float2*>(factors + at);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      v[2 * h] = fmaf(static_cast<float>(d[4 * group + 2 * h]), row_scale[h] * scale.x, bias.x);
      v[2 * h + 1] =
          fmaf(static_cast<float>(d[4 * group + 2 * h + 1]), row_scale[h] * scale.y, bias.y);
    }
  }

  // Of four groups of columns.
  __device__ __forceinline__ void load_residual(float2 (&r)[4][2], int first_column,
                                                int width) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int column = first_column + 8 * j + 2 * t;
        r[j][h] = make_float2(0.0f, 0.0f);
        if (p.residual != nullptr && row + 8 * h < end_row && column < width) {
          r[j][h] = *reinterpret_cast<const float2*>(p.residual +
                                                     (row + 8 * h) * p.residual_stride + column);
        }
      }
    }
  }

  __device__ __forceinline__ void store_f32(const float (&v)[4], int column, int width) const {
    if (column >= width) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row + 8 * h >= end_row) continue;
      *reinterpret_cast<float2*>(static_cast<float*>(p.out) + (row + 8 * h) * p.out_stride +
                                 column) = make_float2(v[2 * h], v[2 * h + 1]);
    }
  }

  // Four groups of eight columns, the words of one row of the lane.
  __device__ __forceinline__ void store_bf16(uint32_t (&words)[4], int half, int column,
                                             int width) const {
    transpose_quad(words, t);
    const int at = column + 8 * t;
    if (row + 8 * half >= end_row || at >= width) return;
    *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(p.out) + (row + 8 * half) * p.out_stride +
                              at) = make_uint4(words[0], words[1], words[2], words[3]);
  }

  // Of a share of K, as they are.
  __device__ __forceinline__ void store_sums(const float (&d)[columns / 2], int first_column,
                                             int split) const {
    const int limit = p.n - first_column;
    const int64_t first = static_cast<int64_t>(split) * p.m + row;
    float* out = static_cast<float*>(p.out) + first * p.out_stride + first_column + 2 * t;
#pragma unroll
    for (int i = 0; i < columns / 8; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (8 * i >= limit || row + 8 * h >= end_row) continue;
        *reinterpret_cast<float2*>(out + 8 * h * p.out_stride + 8 * i) =
            make_float2(d[4 * i + 2 * h], d[4 * i + 2 * h + 1]);
      }
    }
  }

  __device__ __forceinline__ void store(const GemmSum<type> (&d)[columns / 2],
                                        int first_column) const {
    switch (p.finish) {
      case GemmFinish::kBF16:
        return store_bf16_tile<false>(d, first_column);
      case GemmFinish::kSiluMul:
        return store_bf16_tile<true>(d, first_column);
      case GemmFinish::kF32:
        return store_f32_tile<false>(d, first_column);
      case GemmFinish::kAdd:
        return store_f32_tile<true>(d, first_column);
      default:
        return store_any(d, first_column);
    }
  }

  __device__ __forceinline__ void store_any(const GemmSum<type> (&d)[columns / 2],
                                            int first_column) const {
    constexpr int kHalf = columns / 16;  // groups of the gate half
    const int groups = p.silu ? kHalf : 2 * kHalf;
    const int width = p.silu ? p.n / 2 : p.n;
    float2 residual[4][2];
    load_residual(residual, first_column, width);
#pragma unroll
    for (int i = 0; i < 2 * kHalf; i += 4) {
      if (i >= groups) break;
      float2 next[4][2];
      load_residual(next, first_column + 8 * (i + 4), i + 4 < groups ? width : 0);
      uint32_t words[2][4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float v[4];
        finish(v, d, i + j);
        if (i < kHalf && p.silu) {
          float up[4];
          finish(up, d, i < kHalf ? i + j + kHalf : 0);
#pragma unroll
          for (int e = 0; e < 4; ++e) v[e] = silu_mul(v[e], up[e]);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          v[2 * h] += residual[j][h].x;
          v[2 * h + 1] += residual[j][h].y;
          words[h][j] = pack_bf16x2(v[2 * h], v[2 * h + 1]);
        }
        if (p.out_f32) store_f32(v, first_column + 8 * (i + j) + 2 * t, width);
      }
      if (!p.out_f32) {
        store_bf16(words[0], 0, first_column + 8 * i, width);
        store_bf16(words[1], 1, first_column + 8 * i, width);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        residual[j][0] = next[j][0];
        residual[j][1] = next[j][1];
      }
    }
  }
};

// Reads stages of the ring in turn and hands them back to every block that fills them.
template <typename S>
struct GemmRing {
  uint32_t full;
  uint32_t empty;
  uint32_t peer_empty;  // 0: no peer
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void wait() const { barrier_wait(full + 8 * stage, parity); }
  __device__ __forceinline__ void advance() {
    if (++stage == S::kDepth) {
      stage = 0;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ void release(int which, int lane) const {
    if (lane == 0) barrier_arrive(empty + 8 * which);
    if (lane == 1 && peer_empty != 0) barrier_release_peer(peer_empty + 8 * which);
  }
};

template <GemmType type, int columns>
__device__ __forceinline__ void multiply_box(GemmSum<type> (&d)[columns / 2], uint32_t x_at,
                                             uint32_t w_at, bool accumulate) {
  const uint64_t a = operand_along_k(x_at);
  const uint64_t b = operand_along_k(w_at);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (type == GemmType::kBF16) {
      wgmma_bf16(d, a + 2 * i, b + 2 * i, accumulate || i > 0);
    } else if constexpr (type == GemmType::kInt8) {
      wgmma_s8(d, a + 2 * i, b + 2 * i, accumulate || i > 0);
    } else {
      wgmma_e4m3(d, a + 2 * i, b + 2 * i, accumulate || i > 0);
    }
  }
}

// The scales that a box of 128 of k brings: of both rows, and of either half of the columns. Their
// products are made when they are needed, so that nothing waits for the loads.
struct BlockScales {
  float x[2];
  float w;  // in even lanes of the first half, in odd ones of the second

  // Of both halves, in every lane.
  __device__ __forceinline__ void columns(float (&both)[2], int lane) const {
    const float other = __shfl_xor_sync(~0u, w, 1);
    both[0] = lane % 2 == 0 ? w : other;
    both[1] = lane % 2 == 0 ? other : w;
  }
};

// Where a lane finds them. An address that were the same in all lanes would bring its scale to a
// register of the whole warp, and the warp would wait for it before its next product.
struct BlockScaleSource {
  const float* x[2];
  const float* w;

  BlockScaleSource() = default;
  __device__ __forceinline__ BlockScaleSource(const GemmParams& p, int row, int column, int lane) {
    const int64_t boxes = p.scale_boxes;
    const int mine = column + (lane % 2 != 0 && p.silu ? p.n / 2 : 0);
#pragma unroll
    for (int h = 0; h < 2; ++h) x[h] = p.x_scale + min(row + 8 * h, p.m - 1) * boxes;
    w = p.w_scale + mine / 128 * boxes;
  }
  __device__ __forceinline__ void load(BlockScales& scales, int box) const {
    scales.x[0] = x[0][box];
    scales.x[1] = x[1][box];
    scales.w = w[box];
  }
};

// The sum over boxes in FP32 registers. Two products take turns: while one box's is added, the next
// box's is under way, also across tiles. A tile has an even number of boxes, so that each begins
// with the same one: registers cannot be chosen by a number.
template <GemmType type, int columns, bool scaled>
struct PromotedSum {
  using S = GemmShape<type, columns>;
  using Sum = float[columns / 2];
  const GemmParams& p;
  GemmRing<S>& ring;
  uint32_t ring_at;  // of this warpgroup's rows
  uint32_t w_offset;
  int lane;
  BlockScaleSource source = {};  // of the tile whose boxes are multiplied
  int box = 0;                   // of that tile, the next to be multiplied
  int last_stage = -1;           // of the product under way
  Sum part[2];
  BlockScales scales[2];

  __device__ __forceinline__ PromotedSum(const GemmParams& params, GemmRing<S>& stages,
                                         uint32_t rows_at, uint32_t to_weights, int in_warp)
      : p(params), ring(stages), ring_at(rows_at), w_offset(to_weights), lane(in_warp) {}

  __device__ __forceinline__ void add(Sum& d, Sum& product, const BlockScales& scales_of) const {
    wgmma_hold(product);
    if constexpr (scaled) {
      float w[2];
      scales_of.columns(w, lane);
      const float factors[2][2] = {{scales_of.x[0] * w[0], scales_of.x[0] * w[1]},
                                   {scales_of.x[1] * w[0], scales_of.x[1] * w[1]}};
#pragma unroll
      for (int i = 0; i < columns / 2; ++i) {
        d[i] = fmaf(product[i], factors[i / 2 % 2][i / (columns / 4)], d[i]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < columns / 2; ++i) d[i] += product[i];
    }
  }

  // Begins the product `which` and, if `adds`, adds the other.
  template <int which>
  __device__ __forceinline__ void next(Sum& d, bool adds) {
    if constexpr (scaled) source.load(scales[which], min(box, p.scale_boxes - 1));
    ring.wait();
    const uint32_t x_at = ring_at + ring.stage * S::kStageBytes;
    wgmma_fence();
    multiply_box<type, columns>(part[which], x_at, x_at + w_offset, false);
    wgmma_commit();
    wgmma_wait<1>();
    if (last_stage >= 0) ring.release(last_stage, lane);
    last_stage = ring.stage;
    ring.advance();
    ++box;
    if (adds) add(d, part[1 - which], scales[1 - which]);
  }

  // Begins a tile; what is added is the last product of the tile before.
  __device__ __forceinline__ void begin(const BlockScaleSource& scales_from, Sum& d, bool adds) {
    source = scales_from;
    box = 0;
    next<0>(d, adds);
  }
  // The rest of a tile but for adding its last product.
  __device__ __forceinline__ void finish(Sum& d) {
    while (true) {
      next<1>(d, true);
      if (box >= p.k_boxes) return;
      next<0>(d, true);
    }
  }
  // Adds the last product of all.
  __device__ __forceinline__ void end(Sum& d) {
    wgmma_wait<0>();
    ring.release(last_stage, lane);
    add(d, part[1], scales[1]);
  }
};

template <GemmType type, int columns, bool cut>
__device__ __forceinline__ void consume_operands(const GemmParams& p, uint32_t ring_at,
                                                 uint32_t full, uint32_t empty,
                                                 float* shared_factors) {
  using S = GemmShape<type, columns>;
  const int group = static_cast<int>(threadIdx.x) / 128 - 1;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int lane = thread % 32;
  const int rank = p.cluster == 2 ? static_cast<int>(cluster_rank()) : 0;
  const int clusters = static_cast<int>(gridDim.x) / p.cluster;
  const int count = GemmWork<cut>::count(p);
  float* const factors = shared_factors + group * S::kFactorFloats;
  GemmRing<S> ring = {full, empty, p.cluster == 2 ? peer_address(empty, rank ^ 1) : 0};
  const uint32_t rows_at = ring_at + group * 64 * 128;
  const uint32_t w_offset = S::kXBytes - group * 64 * 128;
  for (int index = static_cast<int>(blockIdx.x) / p.cluster; index < count; index += clusters) {
    const GemmWork<cut> work(p, index);
    const GemmTile tile = GemmTile::at<columns>(p, work.tile);
    const int block_row = tile.row + rank * p.block_rows;
    const int place = 64 * group + 16 * (thread / 32);
    ColumnFactors<type, columns> column_factors;
    const bool has_factors = !cut && (type != GemmType::kBF16 || p.finish == GemmFinish::kAny);
    if (has_factors) column_factors.load(p, tile.column, thread);
    const GemmStore<type, columns> store(p, factors, block_row, place, lane);
    GemmSum<type> d[columns / 2];
    int before = 0;
    for (int box = work.first_box; box < work.end_box; ++box) {
      ring.wait();
      const uint32_t x_at = rows_at + ring.stage * S::kStageBytes;
      wgmma_fence();
      multiply_box<type, columns>(d, x_at, x_at + w_offset, box > work.first_box);
      wgmma_commit();
      wgmma_wait<1>();
      if (box > work.first_box) ring.release(before, lane);
      before = ring.stage;
      ring.advance();
    }
    wgmma_wait<0>();
    wgmma_hold(d);
    ring.release(before, lane);
    if (has_factors) column_factors.share(factors, thread, group);
    if constexpr (cut) {
      store.store_sums(d, tile.column, work.split);
    } else {
      store.store(d, tile.column);
    }
  }
}

// The same with sums in FP32 registers. The next tile's first product begins before a tile is
// stored.
template <GemmType type, int columns, bool scaled>
__device__ __forceinline__ void consume_promoted(const GemmParams& p, uint32_t ring_at,
                                                 uint32_t full, uint32_t empty,
                                                 float* shared_factors) {
  using S = GemmShape<type, columns>;
  const int group = static_cast<int>(threadIdx.x) / 128 - 1;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int lane = thread % 32;
  const int rank = p.cluster == 2 ? static_cast<int>(cluster_rank()) : 0;
  const int clusters = static_cast<int>(gridDim.x) / p.cluster;
  const int count = p.row_tiles * p.column_tiles;
  const int place = 64 * group + 16 * (thread / 32);
  float* const factors = shared_factors + group * S::kFactorFloats;
  GemmRing<S> ring = {full, empty, p.cluster == 2 ? peer_address(empty, rank ^ 1) : 0};
  int index = static_cast<int>(blockIdx.x) / p.cluster;
  GemmTile tile = GemmTile::at<columns>(p, index);
  const int first_row = rank * p.block_rows + place + lane / 4;
  PromotedSum<type, columns, scaled> sum(p, ring, ring_at + group * 64 * 128,
                                         S::kXBytes - group * 64 * 128, lane);
  float d[columns / 2];
  sum.begin({p, tile.row + first_row, tile.column, lane}, d, false);
  for (bool more = true; more;) {
    ColumnFactors<type, columns> column_factors;
    column_factors.load(p, tile.column, thread);
    const GemmStore<type, columns> store(p, factors, tile.row + rank * p.block_rows, place, lane);
    const int first_column = tile.column;
#pragma unroll
    for (int i = 0; i < columns / 2; ++i) d[i] = 0.0f;
    sum.finish(d);
    index += clusters;
    more = index < count;
    if (more) {
      tile = GemmTile::at<columns>(p, index);
      sum.begin({p, tile.row + first_row, tile.column, lane}, d, true);
    } else {
      sum.end(d);
    }
    column_factors.share(factors, thread, group);
    store.store(d, first_column);
  }
}

template <GemmType type, int columns, GemmPromotion promotion, bool cut>
__global__ void __launch_bounds__(384, 1) gemm_kernel(const __grid_constant__ GemmParams p) {
  using S = GemmShape<type, columns>;
  extern __shared__ std::byte shared[];
  const uint32_t ring = (shared_address(shared) + 1023) & ~1023u;
  const uint32_t full = ring + S::kBarriersAt;
  const uint32_t empty = full + 8 * S::kDepth;
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kDepth; ++i) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, S::kConsumerWarps * p.cluster);
    }
    barrier_init_fence();
  }
  if (p.cluster == 2) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  wait_prerequisites();
  launch_dependents();
  if (threadIdx.x < 128) {
    give_registers<40>();
    if (threadIdx.x == 0) produce_operands<type, columns, cut>(p, ring, full, empty);
    __syncwarp();
  } else {
    take_registers<232>();
    auto* const factors =
        reinterpret_cast<float*>(shared + (ring - shared_address(shared)) + S::kFactorsAt);
    if constexpr (promotion != GemmPromotion::kNone) {
      consume_promoted<type, columns, promotion == GemmPromotion::kScaled>(p, ring, full, empty,
                                                                           factors);
    } else {
      consume_operands<type, columns, cut>(p, ring, full, empty, factors);
    }
  }
  // The peer may still fill this block's ring and arrive on its barriers.
  if (p.cluster == 2) cluster_sync();
}

}  // namespace pelton::kernels::cuda
