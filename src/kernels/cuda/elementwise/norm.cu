// RMS norm and layer norm: one block a normalised vector of d elements, each thread a stride of it.
// Bytes moved: the vector twice (read from L1 or L2 the second time) and written once. Any d.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__device__ void write(float* out, float value, bool accumulate) {
  // Norm and residual round apart, as on the CPU.
  *out = accumulate ? __fadd_rn(*out, value) : value;
}

__global__ void __launch_bounds__(kThreads) rms_norm_kernel(NormParams p) {
  const int64_t skip = static_cast<int64_t>(blockIdx.y) * p.d;
  const float* x = p.x + static_cast<int64_t>(blockIdx.x) * p.x_stride + skip;
  float* out = p.out + static_cast<int64_t>(blockIdx.x) * p.out_stride + skip;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < p.d; i += kThreads) squares = fmaf(x[i], x[i], squares);
  const float mean = block_sum(squares) / static_cast<float>(p.d);
  const float scale = 1.0f / sqrtf(mean + p.eps);
  for (int64_t i = threadIdx.x; i < p.d; i += kThreads)
    write(out + i, __fmul_rn(__fmul_rn(x[i], scale), p.weight[i]), p.accumulate);
}

__global__ void __launch_bounds__(kThreads) layer_norm_kernel(NormParams p) {
  const int64_t skip = static_cast<int64_t>(blockIdx.y) * p.d;
  const float* x = p.x + static_cast<int64_t>(blockIdx.x) * p.x_stride + skip;
  float* out = p.out + static_cast<int64_t>(blockIdx.x) * p.out_stride + skip;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < p.d; i += kThreads) sum += x[i];
  const float mean = block_sum(sum) / static_cast<float>(p.d);
  // Two passes: a large mean would swallow the variance of a single one.
  float squares = 0;
  for (int64_t i = threadIdx.x; i < p.d; i += kThreads) {
    const float deviation = x[i] - mean;
    squares = fmaf(deviation, deviation, squares);
  }
  const float scale = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(p.d) + p.eps);
  for (int64_t i = threadIdx.x; i < p.d; i += kThreads) {
    const float value = (x[i] - mean) * scale;
    write(out + i, fmaf(value, p.weight[i], p.bias == nullptr ? 0.0f : p.bias[i]), p.accumulate);
  }
}

dim3 grid(const NormParams& p) {
  return {static_cast<unsigned>(p.rows), static_cast<unsigned>(p.groups), 1};
}

}  // namespace

Status rms_norm(const NormParams& params, device::Stream& stream) {
  rms_norm_kernel<<<grid(params), kThreads, 0, handle(stream)>>>(params);
  return stream.launched("rms_norm");
}

Status layer_norm(const NormParams& params, device::Stream& stream) {
  layer_norm_kernel<<<grid(params), kThreads, 0, handle(stream)>>>(params);
  return stream.launched("layer_norm");
}

}  // namespace pelton::kernels::cuda
