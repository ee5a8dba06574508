// The kernel behind wide_m.h; see there for what it computes and how the work is cut.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/matmul/int4_pack.h"
#include "kernels/cuda/matmul/wide_m.h"

namespace pelton::kernels::cuda {

struct WideMParams {
  CUtensorMap x_map;       // [m][k] bf16, or E4M3 codes
  CUtensorMap weight_map;  // [n][k]; int4: [n / 16][k / 128] blocks
  const float* scale;
  const float* x_scale;  // FP8
  const float* bias;
  const void* residual;
  void* out;
  int64_t out_stride;
  int32_t m;
  int32_t n;
  int32_t k_boxes;
  int32_t split;  // blocks of a cluster, that share K
  bool silu;
  bool out_f32;
};

// Shapes of one instantiation: `columns` activation rows, `groups` warpgroups of 64 rows of W.
template <SmallMWeight format, int columns, int groups>
struct WideMShape {
  static constexpr bool kIsBF16 = format == SmallMWeight::kBF16;
  static constexpr bool kIsFp8 = format == SmallMWeight::kFp8;
  static constexpr bool kIsInt4 = format == SmallMWeight::kInt4G128;
  static constexpr bool kIsDirect = kIsBF16 || kIsFp8;  // W goes from shared memory as it is
  static constexpr int kGroupRows = 64;                 // of W, of a warpgroup
  static constexpr int kGroups = groups;
  static constexpr int kTileRows = groups * kGroupRows;
  static constexpr int kConsumers = groups * 128;
  // Weights unpacked in registers beside 64 sums a thread need more than an even share of the
  // registers: of four warpgroups' the producers give theirs away.
  static constexpr bool kIsLarge = !kIsDirect && columns > 64;
  static constexpr bool kMovesRegisters = kIsLarge && groups == 4;
  static constexpr int kThreads = kConsumers + (kMovesRegisters ? 128 : 32);
  // Two small blocks fit on a multiprocessor, so that one streams while the other ends.
  static constexpr int kBlocks = kIsLarge ? 1 : 2;
  static constexpr int kSteps = kMovesRegisters ? 1 : 4;  // of 16 inputs, unpacked at once
  static constexpr int kBoxInputs = kIsBF16 ? 64 : 128;   // k of one box
  static constexpr int kXBoxes = kIsDirect ? 1 : 2;       // of 128 bytes of k
  static constexpr int kXBoxBytes = columns * 128;
  static constexpr int kXBytes = kXBoxes * kXBoxBytes;
  static constexpr int kGroupBytes =
      kIsInt4 ? 4 * static_cast<int>(kInt4BlockBytes) : kGroupRows * 128;
  static constexpr int kWBytes = groups * kGroupBytes;
  static constexpr int kStageBytes = kXBytes + kWBytes;
  static constexpr int kAccumulators = columns / 2;  // of a thread
  static constexpr int kQuads = kAccumulators / 4;   // groups of eight columns
  static constexpr int kMostStages = 16;
  static constexpr int kFixedBytes = 1024 + 2 * kMostStages * 8 + 16;
  static constexpr int kLimit = kBlocks == 2 ? 113 * 1024 - 64 : 227 * 1024;
  static constexpr int kFitting = (kLimit - kFixedBytes) / kStageBytes;
  static constexpr int kDepth = kFitting < kMostStages ? kFitting : kMostStages;
  static constexpr int kSharedBytes = kFixedBytes + kDepth * kStageBytes;
  // Sums lie where the stages were: [column][row of W], rows shifted against banks.
  static constexpr int kPitch = kTileRows + 4;  // floats
  static_assert(kDepth >= 2 && columns * kPitch * 4 <= kDepth * kStageBytes);
};

// The first row of W that a warpgroup takes of a tile: with gates and ups the first half of the
// warpgroups take gates.
template <int groups>
__device__ __forceinline__ int wide_m_row(const WideMParams& p, int tile, int group) {
  constexpr int kHalf = groups / 2;
  return p.silu ? 64 * (kHalf * tile + group % kHalf) + group / kHalf * (p.n / 2)
                : 64 * (groups * tile + group);
}

// One thread asks for all copies: each is one instruction only while it is alone. It brings the m
// rows of x and no more; what the rows behind them hold reaches no output.
template <typename S>
struct WideMProducer {
  const WideMParams& p;
  uint32_t x_ring;
  uint32_t w_ring;
  uint32_t full;
  int rows[S::kGroups];  // of W, where the groups' begin; int4: in blocks
  uint64_t w_policy;
  uint64_t x_policy;

  __device__ __forceinline__ void copy_w(int box, int stage) const {
    constexpr int kStep = S::kIsInt4 ? static_cast<int>(kInt4BlockBytes) / 8 : S::kBoxInputs;
    const uint32_t barrier = full + 8 * stage;
    const uint32_t to = w_ring + stage * S::kWBytes;
    barrier_arrive_expect(barrier, S::kXBoxes * 128 * p.m + S::kWBytes);
#pragma unroll
    for (int i = 0; i < S::kGroups; ++i)
      tile_copy_2d(to + i * S::kGroupBytes, &p.weight_map, box * kStep, rows[i], barrier, w_policy);
  }
  __device__ __forceinline__ void copy_x(int box, int stage) const {
#pragma unroll
    for (int i = 0; i < S::kXBoxes; ++i) {
      tile_copy_2d(x_ring + stage * S::kXBytes + i * S::kXBoxBytes, &p.x_map,
                   box * S::kBoxInputs + 64 * i, 0, full + 8 * stage, x_policy);
    }
  }

  __device__ __forceinline__ void run(int first, int boxes, uint32_t empty) const {
    const int filled = min(boxes, S::kDepth);
    for (int i = 0; i < filled; ++i) copy_w(first + i, i);
    wait_prerequisites();
    launch_dependents();
    for (int i = 0; i < filled; ++i) copy_x(first + i, i);
    int stage = 0;
    uint32_t parity = 0;
    for (int i = filled; i < boxes; ++i) {
      barrier_wait(empty + 8 * stage, parity);
      copy_w(first + i, stage);
      copy_x(first + i, stage);
      if (++stage == S::kDepth) {
        stage = 0;
        parity ^= 1;
      }
    }
  }
};

// W of one box as a lane of the matrix instruction takes it: rows g and g + 8 of the warp's 16, in
// steps of 16 inputs. `load` reads shared memory, `step` gives one of the eight.
template <SmallMWeight format>
struct WideMWeights;

template <>
struct WideMWeights<SmallMWeight::kInt4G128> {
  uint32_t at;         // of this lane's words
  uint4 words;         // of a half
  uint32_t scale[2];   // of rows g, g + 8, for codes at bit 0 and at bit 4
  uint32_t offset[2];  // what a code of 8 becomes, taken off

  // Codes are bf16 numbers code * 2^-133 or 2^-129 where they lie (see mma.cuh); times these, they
  // are (code - 8) * scale * 2^-23, rounded once.
  __device__ __forceinline__ void load(uint32_t tile, int lane) {
    at = tile + 16 * lane;
    words = load_shared_16(at);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint16_t bits;
      asm volatile("ld.shared.u16 %0, [%1];"
                   : "=h"(bits)
                   : "r"(tile + 1024 + 2 * (lane >> 2) + 16 * i)
                   : "memory");
      const float value = __half2float(__ushort_as_half(bits));
      const float large = value * (i == 0 ? 0x1p110f : 0x1p106f);
      scale[i] = pack_bf16x2(large, large);
      offset[i] = pack_bf16x2(value * -0x1p-20f, value * -0x1p-20f);
    }
  }
  __device__ __forceinline__ void step(int j, uint32_t (&a)[4]) {
    const uint32_t word = j % 4 == 0   ? words.x
                          : j % 4 == 1 ? words.y
                          : j % 4 == 2 ? words.z
                                       : words.w;
    if (j == 3) words = load_shared_16(at + 512);
    const uint32_t upper = word >> 8;
    a[0] = fma_bf16x2(int4_low(word), scale[0], offset[0]);
    a[1] = fma_bf16x2(int4_high(word), scale[1], offset[1]);
    a[2] = fma_bf16x2(int4_low(upper), scale[0], offset[0]);
    a[3] = fma_bf16x2(int4_high(upper), scale[1], offset[1]);
  }
};

template <>
struct WideMWeights<SmallMWeight::kInt8> {
  uint32_t at;

  // `tile`: 16 rows of 128 bytes, with the swizzle. A step is one chunk of 16 bytes of a row.
  __device__ __forceinline__ void load(uint32_t tile, int lane) {
    at = tile + swizzled(lane >> 2, 0) + 2 * (lane & 3);
  }
  static __device__ __forceinline__ uint32_t pair(uint32_t address) {
    uint16_t bits;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(address) : "memory");
    return bits;
  }
  __device__ __forceinline__ void step(int j, uint32_t (&a)[4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // inputs 2t, 2t + 1 and 8 more, as int8_even and odd take them
      const uint32_t from = (at ^ (16 * j)) + 1024 * i;
      const uint32_t word = __byte_perm(pair(from), pair(from + 8), 0x5140);
      a[i] = int8_even(word);
      a[i + 2] = int8_odd(word);
    }
  }
};

// Reads stages of the ring in turn.
template <typename S>
struct WideMRing {
  uint32_t x;
  uint32_t w;
  uint32_t full;
  uint32_t empty;
  int stage = 0;
  int held = -1;  // the stage before, which the matrix unit may still read
  uint32_t parity = 0;

  __device__ __forceinline__ void wait() const { barrier_wait(full + 8 * stage, parity); }
  __device__ __forceinline__ void release_held(int lane) {
    if (held >= 0 && lane == 0) barrier_arrive(empty + 8 * held);
    held = -1;
  }
  __device__ __forceinline__ void advance() {
    held = stage;
    if (++stage == S::kDepth) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// sums = W x^T over `boxes` boxes of the ring, for the 64 rows of a warpgroup.
template <SmallMWeight format, typename S>
__device__ __forceinline__ void multiply_boxes(float (&sums)[S::kAccumulators], WideMRing<S>& ring,
                                               int boxes, int group, int warp, int lane) {
  if constexpr (S::kIsDirect) {
    for (int i = 0; i < boxes; ++i) {
      ring.wait();
      const uint64_t a = operand_along_k(ring.w + ring.stage * S::kWBytes + group * S::kGroupBytes);
      const uint64_t b = operand_along_k(ring.x + ring.stage * S::kXBytes);
      wgmma_fence();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (S::kIsFp8) {
          wgmma_e4m3(sums, a + 2 * j, b + 2 * j, i > 0 || j > 0);
        } else {
          wgmma_bf16(sums, a + 2 * j, b + 2 * j, i > 0 || j > 0);
        }
      }
      wgmma_commit();
      wgmma_wait<1>();
      ring.release_held(lane);
      ring.advance();
    }
  } else {
    // Some steps of 16 inputs are under way while the next are unpacked.
    constexpr int kSteps = S::kSteps;
    uint32_t a[2][kSteps][4];
    for (int i = 0; i < boxes; ++i) {
      ring.wait();
      WideMWeights<format> weights;
      weights.load(
          ring.w + ring.stage * S::kWBytes + group * S::kGroupBytes + warp * (S::kGroupBytes / 4),
          lane);
#pragma unroll
      for (int part = 0; part < 8 / kSteps; ++part) {
        wgmma_wait<1>();  // what read a[part % 2] last
        if (part == 1) ring.release_held(lane);
        uint32_t(&fed)[kSteps][4] = a[part % 2];
#pragma unroll
        for (int j = 0; j < kSteps; ++j) weights.step(part * kSteps + j, fed[j]);
        const uint32_t x = ring.x + ring.stage * S::kXBytes + part * kSteps / 4 * S::kXBoxBytes;
        const uint64_t b = operand_along_k(x) + 2 * (part * kSteps % 4);
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < kSteps; ++j) {
          wgmma_bf16<false>(sums, fed[j], b + 2 * j, i > 0 || part > 0 || j > 0);
        }
        wgmma_commit();
      }
      ring.advance();
    }
  }
  wgmma_wait<0>();
  wgmma_hold(sums);
  ring.release_held(lane);
}

// Four sums of adjacent rows of W, of one row of x: from every block that has a part of K, in the
// order of K. `at` is the same place in each.
__device__ __forceinline__ float4 gather_sums(uint32_t at, int split) {
  if (split == 1) {
    const uint4 v = load_shared_16(at);
    return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z),
                       __uint_as_float(v.w));
  }
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int rank = 0; rank < split; rank += 4) {  // four under way at once
    float4 v[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (rank + i < split) v[i] = load_peer_16(peer_address(at, rank + i));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum.x += v[i].x;
      sum.y += v[i].y;
      sum.z += v[i].z;
      sum.w += v[i].w;
    }
  }
  return sum;
}

// Makes four adjacent outputs of a row out of their sums. Whatever does not wait for the sums is
// read before them.
template <SmallMWeight format>
struct WideMStore {
  static constexpr bool kIsScaled = format == SmallMWeight::kFp8 || format == SmallMWeight::kInt8;
  const WideMParams& p;
  int width;           // of out
  int column;          // the first of four
  float factor[2][4];  // of the channels; of the ups behind them
  float addend[2][4];

  __device__ __forceinline__ WideMStore(const WideMParams& params, int first_column)
      : p(params), width(params.silu ? params.n / 2 : params.n), column(first_column) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int j = column + e + i * width;
        const bool exists = column + e < width && (i == 0 || p.silu);
        factor[i][e] = format == SmallMWeight::kInt4G128 ? 0x1p23f : 1.0f;
        if (kIsScaled) factor[i][e] = exists ? p.scale[j] : 0.0f;
        addend[i][e] = exists && p.bias != nullptr ? p.bias[j] : 0.0f;
      }
    }
  }

  __device__ __forceinline__ void load_residual(float (&v)[4], int64_t at, bool is_whole) const {
    if (p.out_f32) {
      const float* const from = static_cast<const float*>(p.residual) + at;
      if (is_whole && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
        const float4 four = *reinterpret_cast<const float4*>(from);
        v[0] = four.x;
        v[1] = four.y;
        v[2] = four.z;
        v[3] = four.w;
        return;
      }
      for (int e = 0; e < 4 && column + e < width; ++e) v[e] = from[e];
    } else {
      const auto* const from = static_cast<const __nv_bfloat16*>(p.residual) + at;
      for (int e = 0; e < 4 && column + e < width; ++e) v[e] = __bfloat162float(from[e]);
    }
  }
  __device__ __forceinline__ void store(const float (&v)[4], int64_t at, bool is_whole) const {
    if (p.out_f32) {
      float* const out = static_cast<float*>(p.out) + at;
      if (is_whole && reinterpret_cast<uintptr_t>(out) % 16 == 0) {
        *reinterpret_cast<float4*>(out) = make_float4(v[0], v[1], v[2], v[3]);
        return;
      }
      for (int e = 0; e < 4 && column + e < width; ++e) out[e] = v[e];
    } else {
      auto* const out = static_cast<__nv_bfloat16*>(p.out) + at;
      if (is_whole && reinterpret_cast<uintptr_t>(out) % 8 == 0) {
        *reinterpret_cast<uint2*>(out) =
            make_uint2(pack_bf16x2(v[0], v[1]), pack_bf16x2(v[2], v[3]));
        return;
      }
      for (int e = 0; e < 4 && column + e < width; ++e) out[e] = __float2bfloat16_rn(v[e]);
    }
  }

  // `at`: the sums of row `row` of x at this thread's columns, the ups' `to_ups` bytes further.
  __device__ __forceinline__ void finish(uint32_t at, uint32_t to_ups, int row) const {
    const bool exists = column < width;
    const bool is_whole = column + 4 <= width;
    const int64_t place = row * p.out_stride + column;
    const float x_scale = format == SmallMWeight::kFp8 ? p.x_scale[row] : 1.0f;
    float residual[4] = {};
    if (p.residual != nullptr && exists) load_residual(residual, place, is_whole);
    const float4 sum = gather_sums(at, p.split);
    float v[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] = v[e] * (x_scale * factor[0][e]) + addend[0][e];
    if (p.silu) {
      const float4 second = gather_sums(at + to_ups, p.split);
      const float ups[4] = {second.x, second.y, second.z, second.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float up = ups[e] * (x_scale * factor[1][e]) + addend[1][e];
        v[e] = v[e] / (1.0f + __expf(-v[e])) * up;
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) v[e] += residual[e];
    if (exists) store(v, place, is_whole);
  }
};

template <SmallMWeight format, int columns, int groups>
__global__ void __launch_bounds__(WideMShape<format, columns, groups>::kThreads,
                                  WideMShape<format, columns, groups>::kBlocks)
    wide_m_kernel(const __grid_constant__ WideMParams p) {
  using S = WideMShape<format, columns, groups>;
  extern __shared__ std::byte shared[];
  const uint32_t base = (shared_address(shared) + 1023) & ~1023u;
  WideMRing<S> ring = {};
  ring.x = base;
  ring.w = base + S::kDepth * S::kXBytes;
  ring.full = base + S::kDepth * S::kStageBytes;
  ring.empty = ring.full + 8 * S::kMostStages;
  ring.held = -1;

  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  if (thread == 0) {
    for (int i = 0; i < S::kDepth; ++i) {
      barrier_init(ring.full + 8 * i, 1);
      barrier_init(ring.empty + 8 * i, S::kConsumers / 32);
    }
    barrier_init_fence();
  }
  __syncthreads();

  const int tile = static_cast<int>(blockIdx.x) / p.split;
  const int rank = static_cast<int>(blockIdx.x) - tile * p.split;  // in the cluster
  const int first = p.k_boxes * rank / p.split;
  const int boxes = p.k_boxes * (rank + 1) / p.split - first;
  if (thread >= S::kConsumers) {
    if constexpr (S::kMovesRegisters) give_registers<24>();
    if (thread == S::kConsumers) {
      constexpr int kRowsAStep = S::kIsInt4 ? kInt4TileRows : 1;
      WideMProducer<S> producer = {
          p, ring.x, ring.w, ring.full, {}, policy_evict_first(), policy_evict_last()};
#pragma unroll
      for (int i = 0; i < groups; ++i)
        producer.rows[i] = wide_m_row<groups>(p, tile, i) / kRowsAStep;
      producer.run(first, boxes, ring.empty);
    }
    if (p.split > 1) {
      __syncwarp();
      cluster_sync();
      cluster_sync();
    }
  } else {
    if constexpr (S::kMovesRegisters) take_registers<112>();
    const int group = thread / 128;
    const int warp = thread % 128 / 32;
    float sums[S::kAccumulators];
    multiply_boxes<format, S>(sums, ring, boxes, group, warp, lane);
    named_sync(1, S::kConsumers);  // nobody reads the stages any more
    float* const mine = reinterpret_cast<float*>(shared + (base - shared_address(shared))) +
                        2 * (lane % 4) * S::kPitch + 64 * group + 16 * warp + lane / 4;
#pragma unroll
    for (int quad = 0; quad < S::kQuads; ++quad) {
      if (8 * quad >= p.m) break;
#pragma unroll
      for (int e = 0; e < 4; ++e)
        mine[(8 * quad + e % 2) * S::kPitch + 8 * (e / 2)] = sums[4 * quad + e];
    }
    // Each block of the cluster finishes a share of the rows of x, four outputs a thread.
    const int width = p.silu ? S::kTileRows / 2 : S::kTileRows;  // of the tile's outputs
    constexpr int kQuads = S::kTileRows / 4;                     // of a row of sums
    const int quad = thread % (p.silu ? kQuads / 2 : kQuads);
    const WideMStore<format> store(p, width * tile + 4 * quad);
    wait_prerequisites();
    if (p.split > 1) {
      cluster_sync();
    } else {
      named_sync(1, S::kConsumers);
    }
    const int begin = p.m * rank / p.split;
    const int end = p.m * (rank + 1) / p.split;
    const int rows_at_once = S::kConsumers / kQuads * (p.silu ? 2 : 1);
    const int at_first = p.silu ? thread / (kQuads / 2) : thread / kQuads;
    for (int row = begin + at_first; row < end; row += rows_at_once)
      store.finish(base + row * S::kPitch * 4 + 16 * quad, S::kTileRows * 2, row);
    if (p.split > 1) {
      __syncwarp();
      cluster_sync();  // the others may still read these sums
    }
  }
}

}  // namespace pelton::kernels::cuda
