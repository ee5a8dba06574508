// The fold over parts of one head's attention, in registers and through the workspace.
#pragma once

#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention/paged_decode_items.cuh"

namespace pelton::kernels::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A part of one head's attention: lane l holds dims l + 32 j. Weights are relative to 2^base.
template <int dims>
struct HeadState {
  float base;
  float sum;
  float value[dims];
};

// into = into (+) next, in this order. Every fold over warps and chunks is a chain of these, so it
// has the same bits wherever it is computed.
template <int dims>
__device__ __forceinline__ void append_state(HeadState<dims>& into, const HeadState<dims>& next) {
  const float base = fmaxf(into.base, next.base);
  const float a = base == -INFINITY ? 0.0f : power_of_two(into.base - base);
  const float b = base == -INFINITY ? 0.0f : power_of_two(next.base - base);
  into.base = base;
  into.sum = fmaf(b, next.sum, __fmul_rn(a, into.sum));
#pragma unroll
  for (int j = 0; j < dims; ++j) {
    into.value[j] = fmaf(b, next.value[j], __fmul_rn(a, into.value[j]));
  }
}

template <int dims>
__device__ __forceinline__ void store_result(const PagedDecodeParams& p, const DecodeHead& h,
                                             int head, HeadState<dims> state, int lane) {
  float rescale = p.value_scale;
  if (p.sinks != nullptr) {
    const float sink = p.sinks[head] * kLog2E;
    const float base = fmaxf(state.base, sink);
    const float scale = power_of_two(state.base - base);
    state.sum = state.sum * scale + power_of_two(sink - base);
    rescale *= scale;
  }
  rescale = state.sum > 0.0f ? rescale / state.sum : 0.0f;
  __nv_bfloat16* to =
      p.out + h.sequence * p.out_stride + static_cast<int64_t>(head) * (32 * dims) + lane;
#pragma unroll
  for (int j = 0; j < dims; ++j) to[32 * j] = __float2bfloat16_rn(state.value[j] * rescale);
}

// Chunk states in the workspace. Slot 0 may hold the fold of several first chunks.
template <int dims>
__device__ __forceinline__ float* chunk_slot(const PagedDecodeParams& p, const DecodeHead& h,
                                             int chunk, int head) {
  const int64_t row = (static_cast<int64_t>(h.sequence) * p.max_chunks + chunk) * p.heads + head;
  return p.partials + row * (32 * dims + 2);
}
template <int dims>
__device__ __forceinline__ void write_state(float* slot, const HeadState<dims>& state, int lane) {
#pragma unroll
  for (int j = 0; j < dims; ++j) __stcg(slot + lane + 32 * j, state.value[j]);
  if (lane == 0) {
    __stcg(slot + 32 * dims, state.base);
    __stcg(slot + 32 * dims + 1, state.sum);
  }
}
template <int dims>
__device__ __forceinline__ HeadState<dims> read_state(const float* slot, int lane) {
  HeadState<dims> state;
#pragma unroll
  for (int j = 0; j < dims; ++j) state.value[j] = __ldcg(slot + lane + 32 * j);
  state.base = __ldcg(slot + 32 * dims);
  state.sum = __ldcg(slot + 32 * dims + 1);
  return state;
}

// Until a counter that another block writes after its states says `count`.
__device__ __forceinline__ void wait_count(const unsigned* counter, int count) {
  unsigned now = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
  } while (now != static_cast<unsigned>(count));
}

// Slot 0, then chunks [first, chunks), a few in flight at a time.
template <int dims>
__device__ __forceinline__ HeadState<dims> fold_chunks(const PagedDecodeParams& p,
                                                       const DecodeHead& h, int head, int first,
                                                       int lane) {
  constexpr int kFlight = dims > 4 ? 2 : 4;
  HeadState<dims> state = read_state<dims>(chunk_slot<dims>(p, h, 0, head), lane);
  for (int chunk = first; chunk < h.chunks; chunk += kFlight) {
    HeadState<dims> next[kFlight];
#pragma unroll
    for (int i = 0; i < kFlight; ++i) {
      const int at = min(chunk + i, h.chunks - 1);
      next[i] = read_state<dims>(chunk_slot<dims>(p, h, at, head), lane);
    }
#pragma unroll
    for (int i = 0; i < kFlight; ++i) {
      if (chunk + i < h.chunks) append_state(state, next[i]);
    }
  }
  return state;
}

}  // namespace pelton::kernels::cuda
