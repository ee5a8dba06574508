// The kernel behind small_m.h; see there for what it computes and how the work is cut.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/matmul/int4_pack.h"
#include "kernels/cuda/matmul/small_m.h"

namespace pelton::kernels::cuda {

struct SmallMParams {
  CUtensorMap x_map;        // [m][k] bf16
  CUtensorMap weight_map;   // [n][k]; unused for int4
  const std::byte* blocks;  // int4
  const float* x_rows;      // [m][k], normed
  int64_t x_stride;
  const float* norm_weight;
  float norm_eps;
  uint32_t norm_bytes;  // of shared memory for the normed rows
  const float* scale;
  const float* bias;
  const void* residual;
  void* out;
  int64_t out_stride;
  int32_t m;
  int32_t n;
  int32_t k;
  int32_t units;        // tiles of 16 rows; with silu, pairs of a gate and an up tile
  int32_t k_boxes;      // boxes of 128 bytes (int4: groups of 128) along K
  int32_t depth;        // stages of a slice
  uint32_t tile_bytes;  // of W in a stage
  bool paired;          // two blocks a multiprocessor: block i and the one half a grid behind it
  bool silu;
  bool out_f32;
};

// Row tiles of a pass: with more columns, x weighs more and is worth sharing among more tiles.
constexpr int small_m_tiles(int columns) { return columns == 16 ? 8 : 4; }

// Shapes of one instantiation: `columns` = 8, 16 or 32 activation rows, `tiles` of 16 rows of W in
// a pass.
template <SmallMWeight weight_format, int columns, int tiles>
struct SmallMShape {
  static constexpr SmallMWeight kFormat = weight_format;
  static constexpr int kColumns = columns;
  static constexpr int kTiles = tiles;
  static constexpr int kSlices = 4;                         // warps that share K
  static constexpr int kRowGroups = columns == 16 ? 4 : 2;  // of warps, that share the tiles
  static constexpr int kWarpTiles = kTiles / kRowGroups;
  static constexpr int kConsumerWarps = kSlices * kRowGroups;
  static constexpr int kConsumers = kConsumerWarps * 32;
  static constexpr int kThreads = kConsumers + kSlices * 32;  // and a producer warp a slice
  static constexpr int kBlocks = columns / 8;  // column blocks of the matrix instruction
  // Registers that are left while sums grow hold what finishes them.
  static constexpr bool kLoadsEarly = tiles == 2;
  static constexpr bool kIsBF16 = kFormat == SmallMWeight::kBF16;
  static constexpr bool kIsInt4 = kFormat == SmallMWeight::kInt4G128;
  static constexpr bool kIsInt8 = kFormat == SmallMWeight::kInt8;
  static constexpr int kBoxInputs = kIsBF16 ? 64 : 128;  // k of one box
  static constexpr int kXBoxes = kBoxInputs / 64;
  static constexpr int kXBoxBytes = columns * 128;
  static constexpr int kXBytes = kXBoxes * kXBoxBytes;
  static constexpr int kTileBytes = kIsInt4 ? static_cast<int>(kInt4BlockBytes) : 2048;
  static constexpr int kPartialFloats = kTiles * 16 * columns;
  static constexpr int kMaxStages = 64;
  static constexpr int kFixedBytes =
      1024 + (kSlices + 1) * kPartialFloats * 4 + 2 * kMaxStages * 8 + 64;
  // With few rows two blocks fit on an SM, so the next product's weights stream in while this one
  // ends.
  static constexpr int kBudget = columns == 8 ? 112 * 1024 + 768 : 226 * 1024;

  // Stages of one slice of K, each of so many bytes; each slice has a ring of its own.
  static constexpr int depth(int stage_bytes, int budget) {
    const int stages = (budget - kFixedBytes) / stage_bytes;
    return (stages < kMaxStages ? stages : kMaxStages) / kSlices;
  }
  static_assert(depth(kXBytes + kTiles * kTileBytes, kBudget) >= 2);
};

// Where lane 4 g + t begins to read in a stage. It takes 16 consecutive inputs of a box of 64, two
// halves of 16 of a box of 128 bytes; of these, lanes t >= 2 take the second half first, which
// keeps shared memory banks apart. The other 16-byte chunks it takes are at these addresses xor a
// constant. Int4 takes x in the order of k, as int4_pack.h has W: half h is the box of 64 h.
template <class S>
struct LaneOffsets {
  uint32_t x;
  uint32_t w;
  uint32_t scale;

  // `x_box`: bytes between boxes of 64 inputs of x.
  __device__ __forceinline__ LaneOffsets(int lane, uint32_t x_box) {
    const int g = lane >> 2;
    const int t = lane & 3;
    x = S::kIsBF16   ? swizzled(g, 2 * t)
        : S::kIsInt4 ? swizzled(lane & 7, lane >> 3)
                     : (t >> 1) * x_box + swizzled(g, (t & 1) * 4 + 2 * (t >> 1));
    w = S::kIsInt4 ? lane * 16 : swizzled(g, 2 * t + (S::kIsBF16 ? 0 : t >> 1));
    scale = 1024 + 2 * g;
  }
};

// Half of what a warp takes from one box of K: half of x, and of tiles row_group + kRowGroups * i.
// A tile past the last is the last again: its sums are not used, and no branch parts the loads and
// the matrix instructions of one tile from the next one's.
template <class S>
struct HalfBox {
  static constexpr int kWLoads = S::kIsInt4 ? 1 : 2;
  uint4 x[S::kBlocks][S::kXBoxes];
  uint4 w[S::kWarpTiles][kWLoads];  // int4: of both rows; else of row g and of row g + 8
  float scale[S::kWarpTiles][2];    // int4, of rows g and g + 8

  __device__ __forceinline__ void load(int h, uint32_t x_at, uint32_t x_box, uint32_t w_at,
                                       const LaneOffsets<S>& lane, int row_group, int tiles) {
#pragma unroll
    for (int n = 0; n < S::kBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < S::kXBoxes; ++i) {
        if constexpr (S::kIsInt4) {
          x[n][i] = load_matrices(((x_at + lane.x) ^ (64 * i)) + x_box * h + 1024 * n);
        } else {
          x[n][i] = load_shared_16(((x_at + lane.x) ^ (16 * (S::kXBoxes * h + i))) + 1024 * n);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < S::kWarpTiles; ++i) {
      const uint32_t base = w_at + min(row_group + S::kRowGroups * i, tiles - 1) * S::kTileBytes;
      if constexpr (S::kIsInt4) {
        w[i][0] = load_shared_16(base + lane.w + 512 * h);
        if (h == 1) {
          scale[i][0] = load_scale(base + lane.scale);
          scale[i][1] = load_scale(base + lane.scale + 16) * kInt4HighShare;
        }
      } else {
        w[i][0] = load_shared_16((base + lane.w) ^ (16 * h));
        w[i][1] = load_shared_16(((base + lane.w) ^ (16 * h)) + 1024);
      }
    }
  }

 private:
  static __device__ __forceinline__ float load_scale(uint32_t at) {
    uint16_t bits;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(at) : "memory");
    return __half2float(__ushort_as_half(bits));
  }
};

__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Sums of a warp: acc[i] of tile row_group + kRowGroups * i. The tiles' chains of matrix
// instructions take turns, so that each waits for its own last one alone. Int4: `group` holds a
// group of 128 until its second half completes it, `excess` what its codes' shift adds to it.
template <class S>
struct WarpSums {
  static constexpr int kGroupTiles = S::kIsInt4 ? S::kWarpTiles : 1;
  float acc[S::kWarpTiles][S::kBlocks][4];
  float group[kGroupTiles][S::kBlocks][4];
  float excess[S::kBlocks][4];

  __device__ __forceinline__ void add(int h, const HalfBox<S>& half) {
    if constexpr (S::kIsBF16) {
      add_bf16(half);
    } else if constexpr (S::kIsInt4) {
      add_int4(h, half);
    } else {
      add_bytes(half);
    }
  }

 private:
  __device__ __forceinline__ void add_bf16(const HalfBox<S>& half) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int i = 0; i < S::kWarpTiles; ++i) {
        const uint4 low = half.w[i][0];
        const uint4 high = half.w[i][1];
#pragma unroll
        for (int n = 0; n < S::kBlocks; ++n) {
          const uint4 x = half.x[n][0];
          mma_bf16(acc[i][n], word_of(low, 2 * j), word_of(high, 2 * j), word_of(low, 2 * j + 1),
                   word_of(high, 2 * j + 1), word_of(x, 2 * j), word_of(x, 2 * j + 1));
        }
      }
    }
  }

  __device__ __forceinline__ void add_int4(int h, const HalfBox<S>& half) {
    if (h == 0) {
#pragma unroll
      for (int n = 0; n < S::kBlocks; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          excess[n][e] = 0.0f;
#pragma unroll
          for (int i = 0; i < S::kWarpTiles; ++i) group[i][n][e] = 0.0f;
        }
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t b[S::kBlocks][2];
#pragma unroll
      for (int n = 0; n < S::kBlocks; ++n) {
        const uint4 x = half.x[n][j / 2];
        b[n][0] = multiply_bf16x2(word_of(x, 2 * (j % 2)), kTwoTo100);
        b[n][1] = multiply_bf16x2(word_of(x, 2 * (j % 2) + 1), kTwoTo100);
        mma_bf16(excess[n], kInt4ZeroLow, kInt4ZeroHigh, kInt4ZeroLow, kInt4ZeroHigh, b[n][0],
                 b[n][1]);
      }
#pragma unroll
      for (int i = 0; i < S::kWarpTiles; ++i) {
        const uint32_t word = word_of(half.w[i][0], j);
        const uint32_t upper = word >> 8;
#pragma unroll
        for (int n = 0; n < S::kBlocks; ++n) {
          mma_bf16(group[i][n], int4_low(word), int4_high(word), int4_low(upper), int4_high(upper),
                   b[n][0], b[n][1]);
        }
      }
    }
    if (h == 0) return;
#pragma unroll
    for (int i = 0; i < S::kWarpTiles; ++i) {
#pragma unroll
      for (int n = 0; n < S::kBlocks; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          acc[i][n][e] = fmaf(half.scale[i][e / 2], group[i][n][e] - excess[n][e], acc[i][n][e]);
        }
      }
    }
  }

  __device__ __forceinline__ void add_bytes(const HalfBox<S>& half) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t b[S::kBlocks][2];
#pragma unroll
      for (int n = 0; n < S::kBlocks;
           ++n) {  // pairs (0, 2), (1, 3), as e4m3_even and odd give them
        const uint4 x = half.x[n][j / 2];
        const uint32_t first = word_of(x, 2 * (j % 2));
        const uint32_t second = word_of(x, 2 * (j % 2) + 1);
        b[n][0] = __byte_perm(first, second, 0x5410);
        b[n][1] = __byte_perm(first, second, 0x7632);
        if constexpr (!S::kIsInt8) {
          b[n][0] = multiply_bf16x2(b[n][0], kTwoTo100);
          b[n][1] = multiply_bf16x2(b[n][1], kTwoTo100);
        }
      }
#pragma unroll
      for (int i = 0; i < S::kWarpTiles; ++i) {
        const uint32_t low = word_of(half.w[i][0], j);
        const uint32_t high = word_of(half.w[i][1], j);
        const uint32_t a0 = S::kIsInt8 ? int8_even(low) : e4m3_even(low);
        const uint32_t a1 = S::kIsInt8 ? int8_even(high) : e4m3_even(high);
        const uint32_t a2 = S::kIsInt8 ? int8_odd(low) : e4m3_odd(low);
        const uint32_t a3 = S::kIsInt8 ? int8_odd(high) : e4m3_odd(high);
#pragma unroll
        for (int n = 0; n < S::kBlocks; ++n) mma_bf16(acc[i][n], a0, a1, a2, a3, b[n][0], b[n][1]);
      }
    }
  }
};

// What an output element becomes from its sums over K. The scale and what else it needs come from
// far away and are asked for before the sums are there, or at least brought nearer.
template <SmallMWeight format>
struct Finish {
  static constexpr bool kIsScaled = format == SmallMWeight::kFp8 || format == SmallMWeight::kInt8;
  float scale;
  float other;  // the up column's scale, or the residual

  // Of weights alone, which may be read before the kernel ahead has ended.
  __device__ __forceinline__ void load_scales(const SmallMParams& p, int column) {
    if constexpr (kIsScaled) {
      scale = p.scale[column];
      if (p.silu) other = p.scale[column + p.n / 2];
    }
  }
  __device__ __forceinline__ void prefetch_scales(const SmallMParams& p, int column) const {
    if constexpr (kIsScaled) {
      prefetch_l2(p.scale + column);
      if (p.silu) prefetch_l2(p.scale + column + p.n / 2);
    }
  }
  __device__ __forceinline__ void load_residual(const SmallMParams& p, int row, int column) {
    if (p.residual != nullptr && !p.silu) other = residual_at(p, row, column);
  }
  __device__ __forceinline__ void store(const SmallMParams& p, float sum, float up, int row,
                                        int column) const {
    float value = linear(p, sum, scale, column);
    if (p.silu) {
      value = value / (1.0f + __expf(-value)) * linear(p, up, other, column + p.n / 2);
    }
    if (p.residual != nullptr) value += p.silu ? residual_at(p, row, column) : other;
    const int64_t at = row * p.out_stride + column;
    if (p.out_f32) {
      static_cast<float*>(p.out)[at] = value;
    } else {
      static_cast<__nv_bfloat16*>(p.out)[at] = __float2bfloat16_rn(value);
    }
  }

 private:
  __device__ __forceinline__ static float residual_at(const SmallMParams& p, int row, int column) {
    const int64_t at = row * p.out_stride + column;
    return p.out_f32 ? static_cast<const float*>(p.residual)[at]
                     : __bfloat162float(static_cast<const __nv_bfloat16*>(p.residual)[at]);
  }
  __device__ __forceinline__ static float linear(const SmallMParams& p, float value,
                                                 float column_scale, int column) {
    if constexpr (format == SmallMWeight::kFp8) value *= column_scale * kTwoTo20;
    if constexpr (format == SmallMWeight::kInt8) value *= column_scale;
    if constexpr (format == SmallMWeight::kInt4G128) value *= kTwoTo33;
    return p.bias != nullptr ? value + p.bias[column] : value;
  }
};

// The units and boxes of one block, the same for its producer and its consumers.
struct SmallMSpan {
  int first_unit;
  int units;
  int units_per_pass;
  int passes;
  int first_box;
  int boxes;
  int rotation;  // where in its boxes a block begins

  __device__ int begin(int pass) const { return first_unit + units * pass / passes; }
  __device__ int box_at(int step) const {
    const int box = step + rotation;
    return first_box + (box < boxes ? box : box - boxes);
  }
};

template <int kTiles, int split>
__device__ __forceinline__ SmallMSpan small_m_span(const SmallMParams& p, int rank) {
  const int clusters = static_cast<int>(gridDim.x) / split;
  int cluster = static_cast<int>(blockIdx.x) / split;
  // The two of a multiprocessor take neighbouring shares, which together are even.
  if (p.paired) cluster = 2 * (cluster % (clusters / 2)) + cluster / (clusters / 2);
  SmallMSpan s;
  s.first_unit = static_cast<int>(static_cast<int64_t>(p.units) * cluster / clusters);
  s.units =
      static_cast<int>(static_cast<int64_t>(p.units) * (cluster + 1) / clusters) - s.first_unit;
  s.units_per_pass = p.silu ? kTiles / 2 : kTiles;
  s.passes = (s.units + s.units_per_pass - 1) / s.units_per_pass;
  s.first_box = p.k_boxes * rank / split;
  s.boxes = p.k_boxes * (rank + 1) / split - s.first_box;
  s.rotation = cluster % s.boxes;
  return s;
}

// Where the stages' shares of x and of W begin in shared memory.
struct SmallMRings {
  uint32_t x;  // on a 1024-byte boundary
  uint32_t w;
};

// Fills the rings of one slice, which owns boxes slice, slice + 4, ... of every pass. A warp: lane
// i brings tile i of W, the lanes behind them the m rows of x and no more: rows cost the copy
// engine time. What the rows behind them hold reaches no output.
template <class S, bool normed>
__device__ __forceinline__ void produce(const SmallMParams& p, const SmallMSpan& span,
                                        SmallMRings rings, uint32_t full, uint32_t empty, int slice,
                                        int lane) {
  const uint64_t policy = lane < S::kTiles ? policy_evict_first() : policy_evict_last();
  rings.x += slice * p.depth * S::kXBytes;
  rings.w += slice * p.depth * p.tile_bytes;
  full += 8 * slice * p.depth;
  empty += 8 * slice * p.depth;

  const auto copy_weights = [&](int tiles, int row, int box, int stage) {
    const uint32_t barrier = full + 8 * stage;
    if (lane == 0) {
      barrier_arrive_expect(barrier, (normed ? 0 : S::kXBoxes * 128 * p.m) + tiles * S::kTileBytes);
    }
    __syncwarp();
    if (lane < tiles) {
      const uint32_t to = rings.w + stage * p.tile_bytes + lane * S::kTileBytes;
      if constexpr (S::kIsInt4) {
        const int64_t block = static_cast<int64_t>(row / 16) * p.k_boxes + span.box_at(box);
        bulk_copy(to, p.blocks + block * kInt4BlockBytes, kInt4BlockBytes, barrier, policy);
      } else {
        tile_copy_2d(to, &p.weight_map, span.box_at(box) * S::kBoxInputs, row, barrier, policy);
      }
    }
  };
  const auto copy_x = [&](int box, int stage) {
    const int i = lane - S::kTiles;
    if (!normed && i >= 0 && i < S::kXBoxes) {
      tile_copy_2d(rings.x + stage * S::kXBytes + i * S::kXBoxBytes, &p.x_map,
                   span.box_at(box) * S::kBoxInputs + 64 * i, 0, full + 8 * stage, policy);
    }
  };

  int stage = 0;
  uint32_t parity = 1;  // of the empty barriers: the first round finds every stage free
  for (int pass = 0; pass < span.passes; ++pass) {
    const int unit = span.begin(pass);
    const int units = span.begin(pass + 1) - unit;
    const int tiles = p.silu ? 2 * units : units;
    const int row = p.silu ? 16 * (unit + lane / 2) + (lane % 2) * (p.n / 2) : 16 * (unit + lane);
    int box = slice;
    if (pass == 0) {  // all that fits, before x may be read
      for (; box < span.boxes && stage < p.depth; box += S::kSlices, ++stage) {
        copy_weights(tiles, row, box, stage);
      }
      wait_prerequisites();
      if (slice == 0 && lane == 0) launch_dependents();
      for (int i = 0; i < stage; ++i) copy_x(slice + S::kSlices * i, i);
      if (stage == p.depth) {
        stage = 0;
        parity = 0;
      }
    }
    for (; box < span.boxes; box += S::kSlices) {
      barrier_wait(empty + 8 * stage, parity);
      copy_weights(tiles, row, box, stage);
      copy_x(box, stage);
      if (++stage == p.depth) {
        stage = 0;
        parity ^= 1;
      }
    }
  }
}

// RMS norms of the m rows as bf16 into shared memory, laid out like boxes of x that are m rows
// high; behind k zeros up to a whole box. By the 256 consumers. The order of sums is that of
// elementwise/norm.cu, whose block of up to 1,024 threads has one for four elements: a thread here
// takes the place of four. Inputs come in spans of 4,096, all of a span asked for before any of it
// is used; the last one stays in registers.
__device__ __forceinline__ void normalise_rows(const SmallMParams& p, std::byte* to, float* partial,
                                               int inputs, int thread) {
  constexpr int kThreads = 256;
  constexpr int kParts = 4;
  constexpr int kSpan = 4 * kThreads * kParts;
  const int lane = thread % 32;
  const int last = (p.k - 1) / kSpan * kSpan;
  const auto read = [&](const float* from, int at) {
    return at < p.k ? *reinterpret_cast<const float4*>(from + at) : make_float4(0, 0, 0, 0);
  };
  const auto read_span = [&](const float* from, int base, float4(&span)[kParts]) {
#pragma unroll
    for (int i = 0; i < kParts; ++i) span[i] = read(from, base + 4 * (thread + kThreads * i));
  };
  float4 weight[kParts];
  read_span(p.norm_weight, last, weight);
  wait_prerequisites();
  for (int row = 0; row < p.m; ++row) {
    const float* from = p.x_rows + row * p.x_stride;
    float4 x[kParts];
    float squares[kParts] = {};
    for (int base = 0; base <= last; base += kSpan) {
      read_span(from, base, x);
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        squares[i] = fmaf(x[i].x, x[i].x, squares[i]);
        squares[i] = fmaf(x[i].y, x[i].y, squares[i]);
        squares[i] = fmaf(x[i].z, x[i].z, squares[i]);
        squares[i] = fmaf(x[i].w, x[i].w, squares[i]);
      }
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
#pragma unroll
      for (int i = 0; i < kParts; ++i) squares[i] += __shfl_xor_sync(~0u, squares[i], step);
    }
    if (lane == 0) {
#pragma unroll
      for (int i = 0; i < kParts; ++i) partial[(thread + kThreads * i) / 32] = squares[i];
    }
    named_sync(1, kThreads);
    float sum = partial[lane];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    const float scale = 1.0f / sqrtf(sum / static_cast<float>(p.k) + p.norm_eps);
    const auto put = [&](int at, const float4& value, const float4& w) {
      if (at >= inputs) return;
      *reinterpret_cast<uint2*>(to + (at / 64) * 128 * p.m + swizzled(row, at % 64 / 8) +
                                at % 8 * 2) =
          make_uint2(pack_bf16x2(__fmul_rn(__fmul_rn(value.x, scale), w.x),
                                 __fmul_rn(__fmul_rn(value.y, scale), w.y)),
                     pack_bf16x2(__fmul_rn(__fmul_rn(value.z, scale), w.z),
                                 __fmul_rn(__fmul_rn(value.w, scale), w.w)));
    };
#pragma unroll
    for (int i = 0; i < kParts; ++i) put(last + 4 * (thread + kThreads * i), x[i], weight[i]);
    for (int at = 4 * thread; at < last; at += 4 * kThreads) {
      put(at, read(from, at), read(p.norm_weight, at));
    }
    named_sync(1, kThreads);  // the sums have been read, and at last: the rows are there
  }
}

template <class S, int split, bool normed>
__global__ void __launch_bounds__(S::kThreads, S::kColumns == 8 ? 2 : 1)
    small_m_kernel(const __grid_constant__ SmallMParams p) {
  constexpr int columns = S::kColumns;
  extern __shared__ std::byte shared[];
  const int stages = S::kSlices * p.depth;
  SmallMRings rings;
  rings.x = (shared_address(shared) + 1023) & ~1023u;
  rings.w = rings.x + (normed ? p.norm_bytes : stages * S::kXBytes);
  float* const partials =
      reinterpret_cast<float*>(shared + (rings.w - shared_address(shared)) + stages * p.tile_bytes);
  float* const received = partials + S::kSlices * S::kPartialFloats;
  const uint32_t full = shared_address(received + S::kPartialFloats);
  const uint32_t empty = full + 8 * S::kMaxStages;
  const uint32_t arrived = empty + 8 * S::kMaxStages;  // the peer's sums lie in `received`
  const uint32_t taken = arrived + 8;                  // the peer has read what was sent to it

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rank = split > 1 ? static_cast<int>(cluster_rank()) : 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, S::kRowGroups);  // all of the slice that owns the box
    }
    barrier_init(arrived, S::kConsumerWarps);
    barrier_init(taken, S::kConsumerWarps);
    barrier_init_fence();
  }
  if constexpr (split > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }

  const SmallMSpan span = small_m_span<S::kTiles, split>(p, rank);
  if (warp >= S::kConsumers / 32) {
    produce<S, normed>(p, span, rings, full, empty, warp - S::kConsumers / 32, lane);
    return;
  }

  const int slice = warp % S::kSlices;
  const int row_group = warp / S::kSlices;
  const uint32_t peer = split > 1 ? peer_address(shared_address(received), rank ^ 1) : 0;
  const uint32_t peer_arrived = split > 1 ? peer_address(arrived, rank ^ 1) : 0;
  const uint32_t peer_taken = split > 1 ? peer_address(taken, rank ^ 1) : 0;

  const int limit = p.silu ? p.n / 2 : p.n;
  // Calls load(row, column) with the first of a pass's elements that this thread finishes.
  const auto with_first = [&](int pass, auto&& load) {
    const int unit = span.begin(pass);
    const int rows = 16 * (span.begin(pass + 1) - unit);
    const int e = static_cast<int>(threadIdx.x);
    const int column = unit * 16 + e % rows;
    if (e < rows * p.m && column < limit) load(e / rows, column);
  };
  Finish<S::kFormat> finish = {};
  const auto load_scales = [&](int /*row*/, int column) {
    if constexpr (S::kLoadsEarly) {
      finish.load_scales(p, column);
    } else {
      finish.prefetch_scales(p, column);
    }
  };
  with_first(0, load_scales);

  const uint32_t x_box = normed ? 128 * p.m : S::kXBoxBytes;
  const LaneOffsets<S> offsets(lane, x_box);
  if constexpr (normed) {
    normalise_rows(p, shared + (rings.x - shared_address(shared)), partials,
                   p.k_boxes * S::kBoxInputs, static_cast<int>(threadIdx.x));
  } else {
    wait_prerequisites();
  }
  int next = 0;  // stage of the slice
  uint32_t parity = 0;
  for (int pass = 0; pass < span.passes; ++pass) {
    const int unit = span.begin(pass);
    const int units = span.begin(pass + 1) - unit;
    const int tiles = p.silu ? 2 * units : units;
    if (pass > 0) with_first(pass, load_scales);
    if constexpr (S::kLoadsEarly) {
      with_first(pass, [&](int row, int column) { finish.load_residual(p, row, column); });
    }
    WarpSums<S> sums = {};
    for (int box = slice; box < span.boxes; box += S::kSlices) {
      const int stage = slice * p.depth + next;
      barrier_wait(full + 8 * stage, parity);
      const uint32_t x =
          rings.x + (normed ? span.box_at(box) * S::kXBoxes * x_box : stage * S::kXBytes);
      const uint32_t w = rings.w + stage * p.tile_bytes;
      const auto release = [&] {
        __syncwarp();
        if (lane == 0) barrier_arrive(empty + 8 * stage);
      };
      if (row_group < tiles) {
        HalfBox<S> first;
        HalfBox<S> second;
        first.load(0, x, x_box, w, offsets, row_group, tiles);
        if constexpr (columns == 8) {  // registers suffice for both
          second.load(1, x, x_box, w, offsets, row_group, tiles);
          release();
          sums.add(0, first);
        } else {
          sums.add(0, first);
          second.load(1, x, x_box, w, offsets, row_group, tiles);
          release();
        }
        sums.add(1, second);
      } else {
        release();
      }
      if (++next == p.depth) {
        next = 0;
        parity ^= 1;
      }
    }

    if (pass > 0) named_sync(1, S::kConsumers);  // the last pass's sums have been read
    const int g = lane >> 2;
    const int t = lane & 3;
#pragma unroll
    for (int i = 0; i < S::kWarpTiles; ++i) {
      const int tile = row_group + S::kRowGroups * i;
      if (tile < tiles) {
        float* to = partials + ((slice * S::kTiles + tile) * 16 + g) * columns + 2 * t;
#pragma unroll
        for (int n = 0; n < S::kBlocks; ++n) {
          *reinterpret_cast<float2*>(to + 8 * n) =
              make_float2(sums.acc[i][n][0], sums.acc[i][n][1]);
          *reinterpret_cast<float2*>(to + 8 * columns + 8 * n) =
              make_float2(sums.acc[i][n][2], sums.acc[i][n][3]);
        }
      }
    }
    named_sync(1, S::kConsumers);

    const auto sum_slices = [&](int at) {
      float sum = partials[at];
#pragma unroll
      for (int i = 1; i < S::kSlices; ++i) sum += partials[i * S::kPartialFloats + at];
      return sum;
    };
    const int rows = 16 * units;
    if constexpr (split > 1) {
      // Rows in blocks of eight belong to the two ranks in turn: send the other's, then finish
      // one's own, always adding rank 1's half of K to rank 0's.
      //
      // compute-sanitizer's racecheck follows barriers of threads but not arrivals on a barrier of
      // another block, so it reports these stores against the reads of `received` below, and that
      // the peer may have ended. Neither can be: each warp's stores come before its lane 0's
      // arrival (__syncwarp, then release at cluster scope), the peer reads after all eight
      // arrivals (acquire at cluster scope), sends again only after `taken`, and no block ends
      // before it has seen the arrivals of its own last pass, which follow the last store to it.
      if (pass > 0) barrier_wait_cluster(taken, (pass - 1) & 1);
      for (int e = static_cast<int>(threadIdx.x); e < rows * p.m; e += S::kConsumers) {
        const int r = e % rows;
        const int at = r * columns + e / rows;
        if (((r >> 3) & 1) != rank) store_peer(peer + 4 * at, sum_slices(at));
      }
      __syncwarp();
      if (lane == 0) barrier_arrive_peer(peer_arrived);
      barrier_wait_cluster(arrived, pass & 1);
    }
    for (int e = static_cast<int>(threadIdx.x); e < rows * p.m; e += S::kConsumers) {
      const int r = e % rows;
      const int m = e / rows;
      const int column = unit * 16 + r;
      if (column >= limit) continue;
      if (!S::kLoadsEarly || e >= S::kConsumers) {
        finish.load_scales(p, column);
        finish.load_residual(p, m, column);
      }
      if constexpr (split > 1) {
        if (((r >> 3) & 1) != rank) continue;
        const int at = r * columns + m;
        const float own = sum_slices(at);
        const float other = received[at];
        finish.store(p, rank == 0 ? own + other : other + own, 0.0f, m, column);
      } else {
        const int tile = p.silu ? 2 * (r / 16) : r / 16;
        const int at = (tile * 16 + r % 16) * columns + m;
        const float up = p.silu ? sum_slices(at + 16 * columns) : 0.0f;
        finish.store(p, sum_slices(at), up, m, column);
      }
    }
    if constexpr (split > 1) {
      __syncwarp();
      if (lane == 0 && pass + 1 < span.passes) barrier_arrive_peer(peer_taken);
    }
  }
}

}  // namespace pelton::kernels::cuda
