// The kernel behind paged_decode.h; see there for what it computes and how the work is cut.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/attention/paged_decode.h"
#include "kernels/cuda/attention/paged_decode_fold.cuh"
#include "kernels/cuda/attention/paged_decode_items.cuh"
#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace pelton::kernels::cuda {

template <PageType type, int head_dim>
struct DecodeShape {
  static constexpr int kWarps = 4;
  static constexpr int kConsumers = kWarps * 32;
  static constexpr int kThreads = kConsumers + 32;
  static constexpr bool kIsFp8 = type == PageType::kFp8;
  static constexpr int kElementBytes = kIsFp8 ? 1 : 2;
  static constexpr int kBoxDims = 128 / kElementBytes;
  // FP8 heads of 64: a row of 128 bytes holds two tokens.
  static constexpr bool kIsPaired = kIsFp8 && head_dim == 64;
  static constexpr int kRowTokens = kIsPaired ? 2 : 1;
  static constexpr int kBoxes = kIsPaired ? 1 : head_dim / kBoxDims;  // 128 bytes along the head
  static constexpr int kBoxRows = 16 / kRowTokens;
  static constexpr int kBoxBytes = kBoxRows * 128;                // 16 keys
  static constexpr int kUnitBytes = kWarps * kBoxes * kBoxBytes;  // 64 keys, or 64 values
  static constexpr int kBlocksPerSm = head_dim == 256 ? 1 : 3;
  static constexpr int kRingBytes = head_dim == 256 ? 160 * 1024 : 48 * 1024;
  static constexpr int kUnits = kRingBytes / kUnitBytes;
  static constexpr int kRow = head_dim + 1;  // floats, padded against bank conflicts
  static constexpr int kMergeFloats = kWarps * kDecodeHeads * kRow;
  static constexpr int kOutTiles = head_dim / 16;
  static constexpr int kLaneDims = head_dim / 32;           // of a finished head, in one lane
  static constexpr int kWarpHeads = kDecodeHeads / kWarps;  // that a warp finishes
  static constexpr int kSharedBytes = 1024 + kUnits * kUnitBytes + kMergeFloats * 4 +
                                      2 * kWarps * kDecodeHeads * 4 + 16 * kUnits +
                                      (2 * kDecodeMaxBatch + 1) * 4 + 64;
};

template <PageType type, int head_dim>
__device__ __forceinline__ void produce_pages(const PagedDecodeParams& p, const ChunkTable& table,
                                              const BlockShare& share, uint32_t ring, uint32_t full,
                                              uint32_t empty, int lane) {
  using S = DecodeShape<type, head_dim>;
  const uint64_t policy = policy_evict_first();
  const int warp = lane % S::kWarps;  // whose keys this lane asks for
  const int dim_box = lane / S::kWarps;
  bool waited = false;
  int unit = 0;
  uint32_t parity = 1;  // of the empty barriers: the first round finds every unit free
  int stretch = 0;
  int64_t item = share.begin[0];
  while (share.has_more(stretch, item)) {
    const DecodeHead h = decode_head(p, table, item);
    const int chunk = static_cast<int>(item - h.first_item);
    const int chunks =
        static_cast<int>(min(static_cast<int64_t>(h.chunks - chunk), share.end[stretch] - item));
    item += chunks;
    const int32_t* blocks = p.blocks_of(h.sequence);
    const int begin = h.begin(chunk);
    const int end = h.end(chunk + chunks - 1);
    int held = begin;  // lane i holds the block of keys held + 16 i
    int32_t block = 0;
    // Chunks are whole tiles of 64, so the tiles of consecutive chunks follow each other.
    for (int key = begin; key < end; key += 64) {
      if ((key - begin) % 512 == 0) {
        held = key;
        const int mine = key + 16 * lane;
        block = mine < end ? blocks[mine / p.block_tokens] : 0;
      }
      // The newest token is written by the kernel ahead.
      if (!waited && key + 64 >= h.length) {
        wait_prerequisites();
        waited = true;
      }
      const int boxes = min(S::kWarps, (end - key + 15) / 16);
      const int32_t box_block = __shfl_sync(~0u, block, (key - held) / 16 + warp);
      const int row = h.kv_head * p.block_tokens + (key + 16 * warp) % p.block_tokens;
#pragma unroll
      for (int kind = 0; kind < 2; ++kind) {
        barrier_wait(empty + 8 * unit, parity);
        const uint32_t barrier = full + 8 * unit;
        if (lane == 0) barrier_arrive_expect(barrier, boxes * S::kBoxes * S::kBoxBytes);
        __syncwarp();
        if (warp < boxes && dim_box < S::kBoxes) {
          tile_copy_3d(ring + unit * S::kUnitBytes + (warp * S::kBoxes + dim_box) * S::kBoxBytes,
                       kind == 0 ? &p.key_map : &p.value_map, dim_box * S::kBoxDims,
                       row / S::kRowTokens, box_block, barrier, policy);
        }
        if (++unit == S::kUnits) {
          unit = 0;
          parity ^= 1;
        }
      }
    }
  }
}

// Query fragments of head first_head + g, laid out as score_tile consumes them. Returns what the
// scores of that head are to be multiplied with: queries for FP8 pages are fp16 times a power of
// two.
template <PageType type, int head_dim>
__device__ __forceinline__ float load_query(const PagedDecodeParams& p, const DecodeHead& h,
                                            uint4 (&query)[head_dim / 32], int lane) {
  const int g = lane >> 2;
  const int t = lane & 3;
  const __nv_bfloat16* from =
      p.q + h.sequence * p.q_stride + static_cast<int64_t>(h.first_head + g) * head_dim;
#pragma unroll
  for (int i = 0; i < head_dim / 32; ++i) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (type == PageType::kBF16) {  // i = 2 * box + half: 8 dims of the box of 64
      if (g < h.heads) {
        v = *reinterpret_cast<const uint4*>(from + 64 * (i / 2) + 16 * t + 8 * (i % 2));
      }
    } else {  // i = 4 * box + 2 * half + part: 8 dims of the box of 128
      if (g < h.heads) {
        const int dim = DecodeShape<type, head_dim>::kIsPaired
                            ? 16 * t + 8 * i
                            : 128 * (i / 4) + 32 * t + 8 * (i % 4);
        v = *reinterpret_cast<const uint4*>(from + dim);
      }
    }
    query[i] = v;
  }
  if (type == PageType::kBF16) return 1.0f;
  uint32_t highest = 0;
#pragma unroll
  for (int i = 0; i < head_dim / 32; ++i) {
    highest = larger_bf16x2(larger_bf16x2(highest, query[i].x), query[i].y);
    highest = larger_bf16x2(larger_bf16x2(highest, query[i].z), query[i].w);
  }
  highest = max(highest & 0xffff, highest >> 16);
  highest = max(highest, __shfl_xor_sync(~0u, highest, 1));
  highest = max(highest, __shfl_xor_sync(~0u, highest, 2));
  const int shift = f16_shift(highest);
  const float scale = two_to(shift);
#pragma unroll
  for (int i = 0; i < head_dim / 32; ++i) {
    query[i] = make_uint4(scaled_f16x2(query[i].x, scale), scaled_f16x2(query[i].y, scale),
                          scaled_f16x2(query[i].z, scale), scaled_f16x2(query[i].w, scale));
  }
  return two_to(-shift);
}

// Four FP8 values of rows g and g + 8 times their fp16 column.
__device__ __forceinline__ void multiply_words_fp8(float (&d)[4], uint32_t a, uint32_t b,
                                                   uint32_t q0, uint32_t q1) {
  const uint2 upper = e4m3_as_f16(a);
  const uint2 lower = e4m3_as_f16(b);
  mma_f16(d, upper.x, lower.x, upper.y, lower.y, q0, q1);
}

// q . k of this warp's 16 keys: rows g, g + 8, columns heads 2t, 2t + 1.
template <PageType type, int head_dim>
__device__ __forceinline__ void score_tile(float (&scores)[4], const uint4 (&query)[head_dim / 32],
                                           uint32_t keys, int lane) {
  using S = DecodeShape<type, head_dim>;
  const int g = lane >> 2;
  const int t = lane & 3;
  float even[4] = {};
  float odd[4] = {};
#pragma unroll
  for (int box = 0; box < S::kBoxes; ++box) {
#pragma unroll
    for (int half = 0; half < (S::kIsPaired ? 1 : 2); ++half) {
      const uint32_t base = keys + box * S::kBoxBytes;
      const int chunk = S::kIsPaired ? 4 * (g & 1) + t : 2 * t + half;
      const uint4 a = load_shared_16(base + swizzled(g / S::kRowTokens, chunk));
      const uint4 b = load_shared_16(base + swizzled((g + 8) / S::kRowTokens, chunk));
      if constexpr (S::kIsFp8) {
        const uint4 q0 = query[4 * box + 2 * half];
        const uint4 q1 = query[4 * box + 2 * half + 1];
        multiply_words_fp8(even, a.x, b.x, q0.x, q0.y);
        multiply_words_fp8(odd, a.y, b.y, q0.z, q0.w);
        multiply_words_fp8(even, a.z, b.z, q1.x, q1.y);
        multiply_words_fp8(odd, a.w, b.w, q1.z, q1.w);
      } else {
        const uint4 q = query[2 * box + half];
        mma_bf16(even, a.x, b.x, a.y, b.y, q.x, q.y);
        mma_bf16(odd, a.z, b.z, a.w, b.w, q.z, q.w);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) scores[i] = even[i] + odd[i];
}

// The pairs of FP8 values at bytes 0, 1 and 2, 3 of words of four keys, times their weights.
__device__ __forceinline__ void value_words_fp8(float (&low)[4], float (&high)[4],
                                                const uint32_t (&w)[4], uint32_t p0, uint32_t p1) {
  const uint2 low01 = e4m3_as_f16(__byte_perm(w[0], w[1], 0x5140));
  const uint2 low23 = e4m3_as_f16(__byte_perm(w[2], w[3], 0x5140));
  const uint2 high01 = e4m3_as_f16(__byte_perm(w[0], w[1], 0x7362));
  const uint2 high23 = e4m3_as_f16(__byte_perm(w[2], w[3], 0x7362));
  mma_f16(low, low01.x, low01.y, low23.x, low23.y, p0, p1);
  mma_f16(high, high01.x, high01.y, high23.x, high23.y, p0, p1);
}

// value_tile where a row holds two tokens: each lane takes 8 dims of 4 keys.
template <int head_dim>
__device__ __forceinline__ void value_tile_paired(float (&out)[head_dim / 16][4], uint32_t p0,
                                                  uint32_t p1, uint32_t values, int valid,
                                                  int lane) {
  const int g = lane >> 2;
  const int t = lane & 3;
  uint2 rows[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = 2 * t + (i & 1) + 8 * (i >> 1);
    rows[i] = load_shared_8(values + swizzled(row / 2, 4 * (row & 1) + g / 2) + 8 * (g & 1));
    if (row >= valid) rows[i] = make_uint2(0, 0);
  }
  const uint32_t first[4] = {rows[0].x, rows[1].x, rows[2].x, rows[3].x};
  const uint32_t second[4] = {rows[0].y, rows[1].y, rows[2].y, rows[3].y};
  value_words_fp8(out[0], out[1], first, p0, p1);
  value_words_fp8(out[2], out[3], second, p0, p1);
}

// out += V^T P^T over this warp's 16 keys. Output tile i, rows g and g + 8, is the pair of dims
// out_dim(i, g), + 1; columns are heads 2t, 2t + 1. Keys at and past `valid` do not exist.
template <PageType type, int head_dim>
__device__ __forceinline__ void value_tile(float (&out)[head_dim / 16][4], uint32_t p0, uint32_t p1,
                                           uint32_t values, int valid, int lane) {
  using S = DecodeShape<type, head_dim>;
  const int g = lane >> 2;
  const int t = lane & 3;
#pragma unroll
  for (int box = 0; box < S::kBoxes; ++box) {
    uint4 rows[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 2 * t + (i & 1) + 8 * (i >> 1);
      rows[i] = load_shared_16(values + box * S::kBoxBytes + swizzled(row, g));
      if (valid < 16 && row >= valid) rows[i] = make_uint4(0, 0, 0, 0);
    }
    const uint32_t w[4][4] = {{rows[0].x, rows[0].y, rows[0].z, rows[0].w},
                              {rows[1].x, rows[1].y, rows[1].z, rows[1].w},
                              {rows[2].x, rows[2].y, rows[2].z, rows[2].w},
                              {rows[3].x, rows[3].y, rows[3].z, rows[3].w}};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (S::kIsFp8) {
        const uint32_t words[4] = {w[0][j], w[1][j], w[2][j], w[3][j]};
        value_words_fp8(out[8 * box + 2 * j], out[8 * box + 2 * j + 1], words, p0, p1);
      } else {
        mma_bf16(out[4 * box + j], __byte_perm(w[0][j], w[1][j], 0x5410),
                 __byte_perm(w[0][j], w[1][j], 0x7632), __byte_perm(w[2][j], w[3][j], 0x5410),
                 __byte_perm(w[2][j], w[3][j], 0x7632), p0, p1);
      }
    }
  }
}

template <PageType type, int head_dim>
__device__ __forceinline__ int out_dim(int tile, int g) {
  if (DecodeShape<type, head_dim>::kIsPaired) return 8 * g + 2 * tile;
  return type == PageType::kFp8 ? 128 * (tile / 8) + 16 * g + 2 * (tile % 8)
                                : 64 * (tile / 4) + 8 * g + 2 * (tile % 4);
}

// State of two heads (2t, 2t + 1) over the keys this warp has seen, in units of log2. Weights are
// relative to `base`, which follows the maximum only when a score passes it by more than kSlack:
// most tiles need no exchange between lanes and no rescaling.
template <int head_dim>
struct WarpState {
  float out[head_dim / 16][4];
  float base[2];
  float sum[2];  // of this lane's keys alone
};
inline constexpr float kSlack = 8.0f;
// For FP8 pages the weights are fp16: the base lies this far below the maximum that set it, so that
// smaller weights keep their bits for longer.
inline constexpr float kBaseBelow = 7.0f;

// The online softmax over one tile: scores become weights. `first_key` is the key of row 0, `end`
// the end of the chunk.
template <PageType type, int head_dim>
__device__ __forceinline__ void fold_scores(const PagedDecodeParams& p, const DecodeHead& h,
                                            WarpState<head_dim>& state, float (&scores)[4],
                                            const float (&multiplier)[2], int first_key, int end,
                                            int lane) {
  constexpr float kBelow = type == PageType::kFp8 ? kBaseBelow : 0.0f;
  const int g = lane >> 2;
  if (p.soft_cap > 0.0f) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[i] = p.soft_cap * tanhf(scores[i] * multiplier[i % 2] / p.soft_cap) * kLog2E;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[i] *= multiplier[i % 2] * kLog2E;
  }
  if (first_key < h.lowest || first_key + 16 > end) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = first_key + g + (i >= 2 ? 8 : 0);
      if (key < h.lowest || key >= end) scores[i] = -INFINITY;
    }
  }
  const bool rises = fmaxf(scores[0], scores[2]) > state.base[0] + (kSlack + kBelow) ||
                     fmaxf(scores[1], scores[3]) > state.base[1] + (kSlack + kBelow);
  if (__any_sync(~0u, rises)) {
    float scale[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float highest = fmaxf(scores[i], scores[i + 2]);
#pragma unroll
      for (int step = 4; step < 32; step *= 2) {
        highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, step));
      }
      highest = fmaxf(highest - kBelow, state.base[i]);
      scale[i] = highest == -INFINITY ? 1.0f : power_of_two(state.base[i] - highest);
      state.base[i] = highest;
      state.sum[i] *= scale[i];
    }
#pragma unroll
    for (int i = 0; i < head_dim / 16; ++i) {
      state.out[i][0] *= scale[0];
      state.out[i][1] *= scale[1];
      state.out[i][2] *= scale[0];
      state.out[i][3] *= scale[1];
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float base = state.base[i] == -INFINITY ? 0.0f : state.base[i];
    scores[i] = power_of_two(scores[i] - base);
    scores[i + 2] = power_of_two(scores[i + 2] - base);
    state.sum[i] += scores[i] + scores[i + 2];
  }
}

template <PageType type, int head_dim>
__global__ void __launch_bounds__(DecodeShape<type, head_dim>::kThreads,
                                  DecodeShape<type, head_dim>::kBlocksPerSm)
    paged_decode_kernel(const __grid_constant__ PagedDecodeParams p) {
  using S = DecodeShape<type, head_dim>;
  using Head = HeadState<S::kLaneDims>;
  extern __shared__ std::byte shared[];
  const uint32_t ring = (shared_address(shared) + 1023) & ~1023u;
  float* const merge = reinterpret_cast<float*>(shared + (ring - shared_address(shared)) +
                                                S::kUnits * S::kUnitBytes);
  float* const bases = merge + S::kMergeFloats;
  float* const sums = bases + S::kWarps * kDecodeHeads;
  const uint32_t full = (shared_address(sums + S::kWarps * kDecodeHeads) + 7) & ~7u;
  const uint32_t empty = full + 8 * S::kUnits;
  ChunkTable table;
  table.begin =
      reinterpret_cast<int32_t*>(shared + (empty + 8 * S::kUnits - shared_address(shared)));
  table.lengths = table.begin + kDecodeMaxBatch + 1;
  __shared__ int is_last;
  __shared__ BlockShare share;

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kUnits; ++i) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, S::kWarps);
    }
    barrier_init_fence();
  }
  if (warp == S::kWarps) {
    count_chunks(p, table, lane);
    __syncwarp();
    if (lane == 0) share_out(p, table, S::kBlocksPerSm, share);
  }
  __syncthreads();
  if (warp == S::kWarps) {
    produce_pages<type, head_dim>(p, table, share, ring, full, empty, lane);
    return;
  }

  wait_prerequisites();
  launch_dependents();
  const int g = lane >> 2;
  const int t = lane & 3;
  int unit = 0;
  uint32_t parity = 0;
  const auto next_unit = [&] {
    __syncwarp();
    if (lane == 0) barrier_arrive(empty + 8 * unit);
    if (++unit == S::kUnits) {
      unit = 0;
      parity ^= 1;
    }
  };
  int stretch = 0;
  int64_t item = share.begin[0];
  while (share.has_more(stretch, item)) {
    const DecodeHead h = decode_head(p, table, item);
    const int first_chunk = static_cast<int>(item - h.first_item);
    const int span = static_cast<int>(
        min(static_cast<int64_t>(h.chunks - first_chunk), share.end[stretch] - item));
    item += span;
    // Whether the fold of all chunks before this block's is in its registers.
    const bool is_handed = share.is_handed(h);
    const bool has_fold = first_chunk == 0 || is_handed;
    uint4 query[head_dim / 32];
    const float unscale = load_query<type, head_dim>(p, h, query, lane);
    const float multiplier[2] = {p.score_scale * __shfl_sync(~0u, unscale, 8 * t),
                                 p.score_scale * __shfl_sync(~0u, unscale, 8 * t + 4)};
    Head finished[S::kWarpHeads];  // of heads warp + 4 i
    if (first_chunk > 0 && is_handed) {
      if (threadIdx.x == 0) {
        wait_count(p.counters + h.counter, first_chunk);
        p.counters[h.counter] = 0;
      }
      named_sync(1, S::kConsumers);
#pragma unroll
      for (int i = 0; i < S::kWarpHeads; ++i) {
        const int head = min(warp + S::kWarps * i, h.heads - 1);
        finished[i] =
            read_state<S::kLaneDims>(chunk_slot<S::kLaneDims>(p, h, 0, h.first_head + head), lane);
      }
    }

    for (int chunk = first_chunk; chunk < first_chunk + span; ++chunk) {
      WarpState<head_dim> state = {};
      state.base[0] = state.base[1] = -INFINITY;
      const int end = h.end(chunk);
      for (int key = h.begin(chunk); key < end; key += 64) {
        const int first = key + 16 * warp;  // of this warp
        const uint32_t offset = static_cast<uint32_t>(warp * S::kBoxes * S::kBoxBytes);
        float scores[4] = {};
        barrier_wait(full + 8 * unit, parity);
        if (first < end) {
          score_tile<type, head_dim>(scores, query, ring + unit * S::kUnitBytes + offset, lane);
        }
        next_unit();
        uint32_t p0 = 0;
        uint32_t p1 = 0;
        if (first < end) {
          fold_scores<type, head_dim>(p, h, state, scores, multiplier, first, end, lane);
          if constexpr (S::kIsFp8) {
            p0 = transpose_8x8(pack_f16x2(scores[0], scores[1]));
            p1 = transpose_8x8(pack_f16x2(scores[2], scores[3]));
          } else {
            p0 = transpose_8x8(pack_bf16x2(scores[0], scores[1]));
            p1 = transpose_8x8(pack_bf16x2(scores[2], scores[3]));
          }
        }
        barrier_wait(full + 8 * unit, parity);
        if (first < end) {
          const uint32_t values = ring + unit * S::kUnitBytes + offset;
          if constexpr (S::kIsPaired) {
            value_tile_paired<head_dim>(state.out, p0, p1, values, end - first, lane);
          } else {
            value_tile<type, head_dim>(state.out, p0, p1, values, end - first, lane);
          }
        }
        next_unit();
      }

      // The four warps' states meet in shared memory; each warp finishes two heads.
      named_sync(1, S::kConsumers);  // the last chunk's have been read
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sum = state.sum[i];
#pragma unroll
        for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
        const int head = 2 * t + i;
        if (head < h.heads) {
          if (g == 0) {
            bases[warp * kDecodeHeads + head] = state.base[i];
            sums[warp * kDecodeHeads + head] = sum;
          }
          float* to = merge + (warp * kDecodeHeads + head) * S::kRow;
#pragma unroll
          for (int tile = 0; tile < S::kOutTiles; ++tile) {
            to[out_dim<type, head_dim>(tile, g)] = state.out[tile][i];
            to[out_dim<type, head_dim>(tile, g) + 1] = state.out[tile][i + 2];
          }
        }
      }
      named_sync(1, S::kConsumers);
#pragma unroll
      for (int i = 0; i < S::kWarpHeads; ++i) {
        const int head = warp + S::kWarps * i;
        if (head < h.heads) {
          Head whole;
#pragma unroll
          for (int w = 0; w < S::kWarps; ++w) {
            Head part;
            part.base = bases[w * kDecodeHeads + head];
            part.sum = sums[w * kDecodeHeads + head];
#pragma unroll
            for (int j = 0; j < S::kLaneDims; ++j) {
              part.value[j] = merge[(w * kDecodeHeads + head) * S::kRow + lane + 32 * j];
            }
            if (w == 0) {
              whole = part;
            } else {
              append_state(whole, part);
            }
          }
          if (chunk == 0) {
            finished[i] = whole;
          } else if (has_fold) {
            append_state(finished[i], whole);
          } else {
            write_state(chunk_slot<S::kLaneDims>(p, h, chunk, h.first_head + head), whole, lane);
          }
        }
      }
    }

    const bool is_whole = has_fold && first_chunk + span == h.chunks;
    if (has_fold) {
#pragma unroll
      for (int i = 0; i < S::kWarpHeads; ++i) {
        const int head = warp + S::kWarps * i;
        if (head < h.heads) {
          if (is_whole) {
            store_result(p, h, h.first_head + head, finished[i], lane);
          } else {
            write_state(chunk_slot<S::kLaneDims>(p, h, 0, h.first_head + head), finished[i], lane);
          }
        }
      }
    }
    if (is_whole) continue;

    __threadfence();
    named_sync(1, S::kConsumers);
    if (is_handed) {
      if (threadIdx.x == 0) atomicExch(p.counters + h.counter, static_cast<unsigned>(span));
      continue;
    }
    // Whoever brings the last chunks folds all of them.
    if (threadIdx.x == 0) {
      const unsigned before = atomicAdd(p.counters + h.counter, static_cast<unsigned>(span));
      is_last = before + static_cast<unsigned>(span) == static_cast<unsigned>(h.chunks) ? 1 : 0;
      if (is_last != 0) p.counters[h.counter] = 0;
    }
    named_sync(1, S::kConsumers);
    if (is_last == 0) continue;
    __threadfence();
    // Slot 0 holds all chunks of the block that took chunk 0.
    const int64_t owner = block_of(share.items, h.first_item, share.blocks);
    const int folded =
        static_cast<int>(first_item_of(share.items, owner + 1, share.blocks) - h.first_item);
#pragma unroll
    for (int i = 0; i < S::kWarpHeads; ++i) {
      const int head = warp + S::kWarps * i;
      if (head < h.heads) {
        const Head whole = fold_chunks<S::kLaneDims>(p, h, h.first_head + head, folded, lane);
        store_result(p, h, h.first_head + head, whole, lane);
      }
    }
  }
}

}  // namespace pelton::kernels::cuda
