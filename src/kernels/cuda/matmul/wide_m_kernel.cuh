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
  CUtensorMap x_map;        // [m][k] bf16
  CUtensorMap weight_map;   // [n][k]; unused for int4
  const std::byte* blocks;  // int4
  const float* scale;
  const float* bias;
  const void* residual;
  void* out;
  int64_t out_stride;
  float4* partials;    // [2 * blocks][accumulators / 4][threads]
  unsigned* counters;  // [units]
  int32_t m;
  int32_t n;
  int32_t units;
  int32_t k_boxes;
  bool silu;
  bool out_f32;
};

// Shapes of one instantiation: `columns` activation rows.
template <SmallMWeight format, int columns>
struct WideMShape {
  static constexpr bool kIsBF16 = format == SmallMWeight::kBF16;
  static constexpr bool kIsInt4 = format == SmallMWeight::kInt4G128;
  static constexpr int kGroupRows = 64;             // of W, of a warpgroup
  static constexpr int kConsumers = 256;            // two warpgroups
  static constexpr int kThreads = kConsumers + 32;  // and a producer warp
  // Of few columns, two blocks fit on a multiprocessor: the next product's weights stream in while
  // this one ends.
  static constexpr bool kIsPaired = columns <= 32;
  static constexpr int kBoxInputs = kIsBF16 ? 64 : 128;  // k of one box
  static constexpr int kXBoxes = kBoxInputs / 64;
  static constexpr int kXBoxBytes = columns * 128;
  static constexpr int kXBytes = kXBoxes * kXBoxBytes;
  static constexpr int kGroupBytes =
      kIsInt4 ? 4 * static_cast<int>(kInt4BlockBytes) : kGroupRows * 128;
  static constexpr int kWBytes = 2 * kGroupBytes;
  static constexpr int kStageBytes = kXBytes + kWBytes;
  static constexpr int kAccumulators = columns / 2;   // of a thread
  static constexpr int kQuads = kAccumulators / 4;    // groups of eight columns
  static constexpr int kExchange = 2 * 2 * 128 * 16;  // bytes
  static constexpr int kMostStages = 16;
  static constexpr int kFixedBytes = 1024 + kExchange + 2 * kMostStages * 8 + 16;
  static constexpr int kLimit = (kIsPaired ? 113 : 227) * 1024 - 64;
  static constexpr int kFitting = (kLimit - kFixedBytes) / kStageBytes;
  static constexpr int kDepth = kFitting < kMostStages ? kFitting : kMostStages;
  static constexpr int kSharedBytes = kFixedBytes + kDepth * kStageBytes;
  static_assert(kDepth >= 2);
};

// The even cut of the flat list of (unit, box) over the blocks.
struct WideMCut {
  int items;
  int blocks;
  __device__ __forceinline__ int first(int block) const {
    return static_cast<int>(static_cast<int64_t>(items) * block / blocks);
  }
  __device__ __forceinline__ int block_of(int item) const {
    return static_cast<int>((static_cast<int64_t>(item + 1) * blocks - 1) / items);
  }
};

// The first row of W that a warpgroup takes of a unit.
__device__ __forceinline__ int wide_m_row(const WideMParams& p, int unit, int group) {
  return p.silu ? 64 * unit + group * (p.n / 2) : 128 * unit + 64 * group;
}

// Lanes 0 to 7 bring W: each a tile of int4, or the first two a group's rows; lanes 8 and 9 bring
// the m rows of x and no more. What the rows behind them hold reaches no output.
template <SmallMWeight format, int columns>
struct WideMProducer {
  using S = WideMShape<format, columns>;
  const WideMParams& p;
  uint32_t x_ring;
  uint32_t w_ring;
  uint32_t full;
  int lane;
  uint64_t policy;

  __device__ __forceinline__ void copy_w(int unit, int box, int stage) const {
    const uint32_t barrier = full + 8 * stage;
    if (lane == 0) barrier_arrive_expect(barrier, S::kXBoxes * 128 * p.m + S::kWBytes);
    __syncwarp();
    const uint32_t to = w_ring + stage * S::kWBytes;
    if constexpr (S::kIsInt4) {
      constexpr uint32_t kBytes = kInt4BlockBytes;
      if (lane >= 8) return;
      const int tile = min(wide_m_row(p, unit, lane / 4) / 16 + lane % 4, (p.n + 15) / 16 - 1);
      const int64_t block = static_cast<int64_t>(tile) * p.k_boxes + box;
      bulk_copy(to + lane * kBytes, p.blocks + block * kBytes, kBytes, barrier, policy);
    } else {
      if (lane >= 2) return;
      tile_copy_2d(to + lane * S::kGroupBytes, &p.weight_map, box * S::kBoxInputs,
                   wide_m_row(p, unit, lane), barrier, policy);
    }
  }
  __device__ __forceinline__ void copy_x(int box, int stage) const {
    const int i = lane - 8;
    if (i >= 0 && i < S::kXBoxes) {
      tile_copy_2d(x_ring + stage * S::kXBytes + i * S::kXBoxBytes, &p.x_map,
                   box * S::kBoxInputs + 64 * i, 0, full + 8 * stage, policy);
    }
  }

  __device__ __forceinline__ void run(int first, int last, uint32_t empty) const {
    int unit = first / p.k_boxes;
    int box = first - unit * p.k_boxes;
    const auto next = [&] {
      if (++box == p.k_boxes) {
        box = 0;
        ++unit;
      }
    };
    const int first_box = box;
    const int filled = min(last - first, S::kDepth);
    for (int i = 0; i < filled; ++i, next()) copy_w(unit, box, i);
    wait_prerequisites();
    if (lane == 0) launch_dependents();
    for (int i = 0, at = first_box; i < filled; ++i) {
      copy_x(at, i);
      if (++at == p.k_boxes) at = 0;
    }
    int stage = 0;
    uint32_t parity = 0;
    for (int item = first + filled; item < last; ++item, next()) {
      barrier_wait(empty + 8 * stage, parity);
      copy_w(unit, box, stage);
      copy_x(box, stage);
      if (++stage == S::kDepth) {
        stage = 0;
        parity ^= 1;
      }
    }
  }
};

// W of one box as a lane of the matrix instruction takes it: rows g and g + 8 of the warp's 16, in
// steps of 16 inputs. `load` reads shared memory, `half` gives the four steps of a half.
template <SmallMWeight format>
struct WideMWeights;

template <>
struct WideMWeights<SmallMWeight::kInt4G128> {
  uint4 words[2];
  uint32_t scale[2];   // of rows g, g + 8, for codes at bit 0 and at bit 4
  uint32_t offset[2];  // what a code of 8 becomes, taken off

  // Codes are bf16 numbers code * 2^-133 or 2^-129 where they lie (see mma.cuh); times these, they
  // are (code - 8) * scale * 2^-23, rounded once.
  __device__ __forceinline__ void load(uint32_t tile, int lane) {
    words[0] = load_shared_16(tile + 16 * lane);
    words[1] = load_shared_16(tile + 16 * lane + 512);
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
  __device__ __forceinline__ void half(int h, uint32_t (&a)[4][4]) const {
    const uint4 v = words[h];
    const uint32_t word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t upper = word[j] >> 8;
      a[j][0] = fma_bf16x2(int4_low(word[j]), scale[0], offset[0]);
      a[j][1] = fma_bf16x2(int4_high(word[j]), scale[1], offset[1]);
      a[j][2] = fma_bf16x2(int4_low(upper), scale[0], offset[0]);
      a[j][3] = fma_bf16x2(int4_high(upper), scale[1], offset[1]);
    }
  }
};

// FP8 and int8.
template <bool is_int8>
struct WideMBytes {
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
  __device__ __forceinline__ void half(int h, uint32_t (&a)[4][4]) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {  // inputs 2t, 2t + 1 and 8 more, as e4m3_even and odd take them
        const uint32_t from = (at ^ (16 * (4 * h + j))) + 1024 * i;
        const uint32_t word = __byte_perm(pair(from), pair(from + 8), 0x5140);
        a[j][i] = is_int8 ? int8_even(word) : multiply_bf16x2(e4m3_even(word), kTwoTo120);
        a[j][i + 2] = is_int8 ? int8_odd(word) : multiply_bf16x2(e4m3_odd(word), kTwoTo120);
      }
    }
  }
};
template <>
struct WideMWeights<SmallMWeight::kFp8> : WideMBytes<false> {};
template <>
struct WideMWeights<SmallMWeight::kInt8> : WideMBytes<true> {};

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
template <SmallMWeight format, int columns>
__device__ __forceinline__ void multiply_boxes(float (&sums)[columns / 2],
                                               WideMRing<WideMShape<format, columns>>& ring,
                                               int boxes, int group, int warp, int lane) {
  using S = WideMShape<format, columns>;
  if constexpr (S::kIsBF16) {
    for (int i = 0; i < boxes; ++i) {
      ring.wait();
      const uint64_t a = operand_along_k(ring.w + ring.stage * S::kWBytes + group * S::kGroupBytes);
      const uint64_t b = operand_along_k(ring.x + ring.stage * S::kXBytes);
      wgmma_fence();
#pragma unroll
      for (int j = 0; j < 4; ++j) wgmma_bf16(sums, a + 2 * j, b + 2 * j, i > 0 || j > 0);
      wgmma_commit();
      wgmma_wait<1>();
      ring.release_held(lane);
      ring.advance();
    }
  } else {
    uint32_t a[2][4][4];
    for (int i = 0; i < boxes; ++i) {
      ring.wait();
      WideMWeights<format> weights;
      weights.load(
          ring.w + ring.stage * S::kWBytes + group * S::kGroupBytes + warp * (S::kGroupBytes / 4),
          lane);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        wgmma_wait<1>();  // what read a[h] last
        if (h == 1) ring.release_held(lane);
        weights.half(h, a[h]);
        const uint64_t b = operand_along_k(ring.x + ring.stage * S::kXBytes + h * S::kXBoxBytes);
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          wgmma_bf16<false>(sums, a[h][j], b + 2 * j, i > 0 || h > 0 || j > 0);
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

// Turns sums into outputs. A thread has rows `row` and row + 8 of W and, of each group of eight
// columns, activation rows 2t and 2t + 1.
template <SmallMWeight format, int columns>
struct WideMStore {
  using S = WideMShape<format, columns>;
  const WideMParams& p;
  int width;      // of out
  int column[2];  // of out
  int t;

  __device__ __forceinline__ WideMStore(const WideMParams& params, int first_column, int lane)
      : p(params), width(params.silu ? params.n / 2 : params.n), t(lane & 3) {
    column[0] = first_column + (lane >> 2);
    column[1] = column[0] + 8;
  }

  __device__ __forceinline__ float linear(float value, int j) const {
    if (j >= p.n) return value;
    if constexpr (!S::kIsBF16 && !S::kIsInt4) value *= p.scale[j];
    if constexpr (S::kIsInt4) value *= 0x1p23f;
    return p.bias != nullptr ? value + p.bias[j] : value;
  }
  __device__ __forceinline__ int row_of(int quad, int e) const {
    return 8 * quad + 2 * t + (e & 1);
  }
  __device__ __forceinline__ bool exists(int quad, int e) const {
    return row_of(quad, e) < p.m && column[e >> 1] < width;
  }
  __device__ __forceinline__ int64_t place(int quad, int e) const {
    return row_of(quad, e) * p.out_stride + column[e >> 1];
  }
  __device__ __forceinline__ void load_residual(float (&v)[4], int quad) const {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      v[e] = 0.0f;
      if (p.residual == nullptr || !exists(quad, e)) continue;
      v[e] = p.out_f32
                 ? static_cast<const float*>(p.residual)[place(quad, e)]
                 : __bfloat162float(static_cast<const __nv_bfloat16*>(p.residual)[place(quad, e)]);
    }
  }
  __device__ __forceinline__ void store(const float (&v)[4], int quad) const {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (!exists(quad, e)) continue;
      if (p.out_f32) {
        static_cast<float*>(p.out)[place(quad, e)] = v[e];
      } else {
        static_cast<__nv_bfloat16*>(p.out)[place(quad, e)] = __float2bfloat16_rn(v[e]);
      }
    }
  }

  // A product without an activation. Residuals are read some groups ahead of the stores, which may
  // be to the same places.
  __device__ __forceinline__ void finish(const float (&sums)[columns / 2]) const {
    constexpr int kFlight = S::kQuads < 4 ? S::kQuads : 4;
#pragma unroll
    for (int first = 0; first < S::kQuads; first += kFlight) {
      if (8 * first >= p.m) break;
      float v[kFlight][4];
#pragma unroll
      for (int i = 0; i < kFlight; ++i) load_residual(v[i], first + i);
#pragma unroll
      for (int i = 0; i < kFlight; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          v[i][e] += linear(sums[4 * (first + i) + e], column[e >> 1]);
        }
        store(v[i], first + i);
      }
    }
  }

  // Warpgroup 0 has the gates, 1 the ups: of two groups of columns each finishes one.
  __device__ __forceinline__ void finish_silu(const float (&sums)[columns / 2], float4* exchange,
                                              int group, int thread) const {
#pragma unroll
    for (int quad = 0; quad < S::kQuads; quad += 2) {
      if (8 * quad >= p.m) break;
      const int mine = quad + group;
      float4* const buffer = exchange + (quad / 2 % 2) * 256;
      float own[4];
      float sent[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        own[e] = group == 0 ? sums[4 * quad + e] : sums[4 * quad + 4 + e];
        sent[e] = group == 0 ? sums[4 * quad + 4 + e] : sums[4 * quad + e];
      }
      buffer[(1 - group) * 128 + thread] = make_float4(sent[0], sent[1], sent[2], sent[3]);
      float v[4];
      load_residual(v, mine);
      named_sync(1, S::kConsumers);
      const float4 other = buffer[group * 128 + thread];
      const float got[4] = {other.x, other.y, other.z, other.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int j = column[e >> 1];
        const float gate = linear(group == 0 ? own[e] : got[e], j);
        const float up = linear(group == 0 ? got[e] : own[e], j + p.n / 2);
        v[e] += gate / (1.0f + __expf(-gate)) * up;
      }
      store(v, mine);
    }
    named_sync(1, S::kConsumers);  // the next unit writes the first buffer again
  }
};

// Parts of a unit through the workspace.
template <int count>
__device__ __forceinline__ void write_part(const WideMParams& p, int64_t part,
                                           const float (&sums)[count], int thread) {
  float4* const to = p.partials + part * (count / 4) * 256 + thread;
#pragma unroll
  for (int i = 0; i < count / 4; ++i) {
    __stcg(to + i * 256,
           make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
  }
}
template <int count>
__device__ __forceinline__ void add_part(const WideMParams& p, int64_t part, float (&sums)[count],
                                         bool is_first, int thread) {
  const float4* const from = p.partials + part * (count / 4) * 256 + thread;
#pragma unroll
  for (int i = 0; i < count / 4; ++i) {
    const float4 v = __ldcg(from + i * 256);
    const float add[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[4 * i + e] = is_first ? add[e] : sums[4 * i + e] + add[e];
  }
}

template <SmallMWeight format, int columns>
__global__ void __launch_bounds__(WideMShape<format, columns>::kThreads,
                                  WideMShape<format, columns>::kIsPaired ? 2 : 1)
    wide_m_kernel(const __grid_constant__ WideMParams p) {
  using S = WideMShape<format, columns>;
  extern __shared__ std::byte shared[];
  const uint32_t base = (shared_address(shared) + 1023) & ~1023u;
  WideMRing<S> ring = {};
  ring.x = base;
  ring.w = base + S::kDepth * S::kXBytes;
  float4* const exchange = reinterpret_cast<float4*>(shared + (base - shared_address(shared)) +
                                                     S::kDepth * S::kStageBytes);
  ring.full = shared_address(exchange) + S::kExchange;
  ring.empty = ring.full + 8 * S::kMostStages;
  ring.held = -1;
  __shared__ int is_last;

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

  const WideMCut cut = {p.units * p.k_boxes, static_cast<int>(gridDim.x)};
  const int block = static_cast<int>(blockIdx.x);
  const int first = cut.first(block);
  const int last = cut.first(block + 1);
  if (thread >= S::kConsumers) {
    const WideMProducer<format, columns> producer = {
        p, ring.x, ring.w, ring.full, lane, lane < 8 ? policy_evict_first() : policy_evict_last()};
    producer.run(first, last, ring.empty);
    return;
  }

  const int group = thread / 128;
  const int warp = thread % 128 / 32;
  bool waited = false;
  for (int item = first; item < last;) {
    const int unit = item / p.k_boxes;
    const int unit_first = unit * p.k_boxes;
    const int boxes = min(unit_first + p.k_boxes, last) - item;
    float sums[S::kAccumulators];
    multiply_boxes<format, columns>(sums, ring, boxes, group, warp, lane);
    if (!waited) wait_prerequisites();
    waited = true;

    if (boxes < p.k_boxes) {  // whoever brings the last part adds all of them
      write_part(p, 2 * block + (item == first ? 0 : 1), sums, thread);
      __threadfence();
      named_sync(1, S::kConsumers);
      const int first_block = cut.block_of(unit_first);
      const int last_block = cut.block_of(unit_first + p.k_boxes - 1);
      if (thread == 0) {
        const auto parts = static_cast<unsigned>(last_block - first_block + 1);
        is_last = atomicAdd(p.counters + unit, 1u) + 1 == parts ? 1 : 0;
        if (is_last != 0) p.counters[unit] = 0;
      }
      named_sync(1, S::kConsumers);
      item += boxes;
      if (is_last == 0) continue;
      __threadfence();
      for (int b = first_block; b <= last_block; ++b) {
        add_part(p, 2 * b + (cut.first(b) >= unit_first ? 0 : 1), sums, b == first_block, thread);
      }
    } else {
      item += boxes;
    }

    const int column = (p.silu ? 64 * unit : 128 * unit + 64 * group) + 16 * warp;
    const WideMStore<format, columns> store(p, column, lane);
    if (p.silu) {
      store.finish_silu(sums, exchange, group, thread % 128);
    } else {
      store.finish(sums);
    }
  }
}

}  // namespace pelton::kernels::cuda
