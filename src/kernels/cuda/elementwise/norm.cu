// RMS norm and layer norm: one block a normalised vector of d elements. The vector is read once and
// held in registers where d is a multiple of 4 up to 16,384 (RMS norm), else read again from L1 or
// L2; it is written once. Any d. The cut into threads follows d alone.
#include <algorithm>

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/rows.cuh"
#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostThreads = 1024;
constexpr int kHeld = 4;  // groups of four elements that a thread holds

// Norm and residual round apart, as on the CPU.
__device__ void write(const Rows& out, int64_t row, int64_t at, float value, bool accumulate) {
  store_at(out, row, at, accumulate ? __fadd_rn(load_at(out, row, at), value) : value);
}

__device__ void store_four(float* to, float4 v) { *reinterpret_cast<float4*>(to) = v; }
__device__ void store_four(__nv_bfloat16* to, float4 v) {
  const __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y);
  const __nv_bfloat162 high = __floats2bfloat162_rn(v.z, v.w);
  uint2 raw;
  raw.x = *reinterpret_cast<const uint32_t*>(&low);
  raw.y = *reinterpret_cast<const uint32_t*>(&high);
  *reinterpret_cast<uint2*>(to) = raw;
}

template <typename From, typename To>
__global__ void __launch_bounds__(kMostThreads) rms_norm_four(NormParams p) {
  const int64_t skip = static_cast<int64_t>(blockIdx.y) * p.d;
  const int64_t first = 4 * static_cast<int64_t>(threadIdx.x);
  const int64_t step = 4 * static_cast<int64_t>(blockDim.x);
  float4 weight[kHeld];
  float4 x[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    if (first + j * step < p.d) weight[j] = Four<float>::load(p.weight + first + j * step);
  }
  enter_chain();
  const From* from = row_of<From>(p.x, blockIdx.x) + skip;
  To* out = row_of<To>(p.out, blockIdx.x) + skip;
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    if (first + j * step >= p.d) break;
    x[j] = Four<From>::load(from + first + j * step);
    squares = fmaf(x[j].x, x[j].x, squares);
    squares = fmaf(x[j].y, x[j].y, squares);
    squares = fmaf(x[j].z, x[j].z, squares);
    squares = fmaf(x[j].w, x[j].w, squares);
  }
  const float mean = block_sum(squares) / static_cast<float>(p.d);
  const float scale = 1.0f / sqrtf(mean + p.eps);
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int64_t at = first + j * step;
    if (at >= p.d) break;
    float4 v;
    v.x = __fmul_rn(__fmul_rn(x[j].x, scale), weight[j].x);
    v.y = __fmul_rn(__fmul_rn(x[j].y, scale), weight[j].y);
    v.z = __fmul_rn(__fmul_rn(x[j].z, scale), weight[j].z);
    v.w = __fmul_rn(__fmul_rn(x[j].w, scale), weight[j].w);
    if (p.accumulate) {
      const float4 before = Four<To>::load(out + at);
      v.x = __fadd_rn(before.x, v.x);
      v.y = __fadd_rn(before.y, v.y);
      v.z = __fadd_rn(before.z, v.z);
      v.w = __fadd_rn(before.w, v.w);
    }
    store_four(out + at, v);
  }
}

// The same sums in the same order by a quarter of the threads, each standing for four: more rows
// are under way on a multiprocessor. For steps of many rows, whose vectors rms_norm_four would give
// one group of four elements a thread.
template <typename From, typename To>
__global__ void __launch_bounds__(kThreads) rms_norm_many(NormParams p) {
  __shared__ float partial[32];
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  enter_chain();
  const int64_t skip = static_cast<int64_t>(blockIdx.y) * p.d;
  const From* from = row_of<From>(p.x, blockIdx.x) + skip;
  To* out = row_of<To>(p.out, blockIdx.x) + skip;
  float4 x[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t at = 4 * static_cast<int64_t>(thread + j * threads);
    x[j] = at < p.d ? Four<From>::load(from + at) : make_float4(0, 0, 0, 0);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float squares = fmaf(x[j].x, x[j].x, 0.0f);
    squares = fmaf(x[j].y, x[j].y, squares);
    squares = fmaf(x[j].z, x[j].z, squares);
    squares = fmaf(x[j].w, x[j].w, squares);
    squares = warp_sum(squares);
    if (lane == 0) partial[(thread + j * threads) / 32] = squares;
  }
  __syncthreads();
  const float sum = warp_sum(lane < threads / 8 ? partial[lane] : 0.0f);
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(p.d) + p.eps);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t at = 4 * static_cast<int64_t>(thread + j * threads);
    if (at >= p.d) break;
    const float4 weight = Four<float>::load(p.weight + at);
    float4 v;
    v.x = __fmul_rn(__fmul_rn(x[j].x, scale), weight.x);
    v.y = __fmul_rn(__fmul_rn(x[j].y, scale), weight.y);
    v.z = __fmul_rn(__fmul_rn(x[j].z, scale), weight.z);
    v.w = __fmul_rn(__fmul_rn(x[j].w, scale), weight.w);
    if (p.accumulate) {
      const float4 before = Four<To>::load(out + at);
      v.x = __fadd_rn(before.x, v.x);
      v.y = __fadd_rn(before.y, v.y);
      v.z = __fadd_rn(before.z, v.z);
      v.w = __fadd_rn(before.w, v.w);
    }
    store_four(out + at, v);
  }
}

__global__ void __launch_bounds__(kThreads) rms_norm_any(NormParams p) {
  enter_chain();
  const int64_t row = blockIdx.x;
  const int64_t skip = static_cast<int64_t>(blockIdx.y) * p.d;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < p.d; i += kThreads) {
    const float x = load_at(p.x, row, skip + i);
    squares = fmaf(x, x, squares);
  }
  const float mean = block_sum(squares) / static_cast<float>(p.d);
  const float scale = 1.0f / sqrtf(mean + p.eps);
  for (int64_t i = threadIdx.x; i < p.d; i += kThreads) {
    const float value = __fmul_rn(__fmul_rn(load_at(p.x, row, skip + i), scale), p.weight[i]);
    write(p.out, row, skip + i, value, p.accumulate);
  }
}

__global__ void __launch_bounds__(kThreads) layer_norm_kernel(NormParams p) {
  enter_chain();
  const int64_t row = blockIdx.x;
  const int64_t skip = static_cast<int64_t>(blockIdx.y) * p.d;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < p.d; i += kThreads) sum += load_at(p.x, row, skip + i);
  const float mean = block_sum(sum) / static_cast<float>(p.d);
  // Two passes: a large mean would swallow the variance of a single one.
  float squares = 0;
  for (int64_t i = threadIdx.x; i < p.d; i += kThreads) {
    const float deviation = load_at(p.x, row, skip + i) - mean;
    squares = fmaf(deviation, deviation, squares);
  }
  const float scale = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(p.d) + p.eps);
  for (int64_t i = threadIdx.x; i < p.d; i += kThreads) {
    const float value = (load_at(p.x, row, skip + i) - mean) * scale;
    const float bias = p.bias == nullptr ? 0.0f : p.bias[i];
    write(p.out, row, skip + i, fmaf(value, p.weight[i], bias), p.accumulate);
  }
}

dim3 grid(const NormParams& p) {
  return {static_cast<unsigned>(p.rows), static_cast<unsigned>(p.groups), 1};
}

bool is_held(const NormParams& p) {
  return p.d % 4 == 0 && p.d <= 4 * kHeld * kMostThreads && is_four_wide(p.x) &&
         is_four_wide(p.out) && reinterpret_cast<uintptr_t>(p.weight) % 16 == 0;
}

}  // namespace

Status rms_norm(const NormParams& params, device::Stream& stream) {
  if (!is_held(params)) {
    launch_chained(rms_norm_any, grid(params), kThreads, params, handle(stream));
    return stream.launched("rms_norm");
  }
  const auto threads =
      static_cast<unsigned>(std::clamp<int64_t>((params.d / 4 + 31) / 32 * 32, 32, kMostThreads));
  constexpr int64_t kManyRows = 512;
  if (params.rows * params.groups >= kManyRows && threads % 128 == 0 && params.d <= 4 * threads) {
    with_type(params.x.type, [&](auto from) {
      with_type(params.out.type, [&](auto to) {
        launch_chained(rms_norm_many<decltype(from), decltype(to)>, grid(params), threads / 4,
                       params, handle(stream));
      });
    });
    return stream.launched("rms_norm");
  }
  with_type(params.x.type, [&](auto from) {
    with_type(params.out.type, [&](auto to) {
      launch_chained(rms_norm_four<decltype(from), decltype(to)>, grid(params), threads, params,
                     handle(stream));
    });
  });
  return stream.launched("rms_norm");
}

Status layer_norm(const NormParams& params, device::Stream& stream) {
  launch_chained(layer_norm_kernel, grid(params), kThreads, params, handle(stream));
  return stream.launched("layer_norm");
}

}  // namespace pelton::kernels::cuda
