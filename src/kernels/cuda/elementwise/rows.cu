// Activations, soft cap, residual, gathering and embedding: a thread an element, each read and
// written once. Functions in f32 without the fast approximations.
#include "kernels/cuda/common/convert.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Calls element(row, column) for this thread's element.
template <typename Element>
__device__ void for_element(int64_t rows, int64_t columns, const Element& element) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < rows * columns) element(i / columns, i % columns);
}

__device__ float apply(DeviceActivation activation, float x) {
  switch (activation) {
    case DeviceActivation::kSilu:
      return x / (1.0f + expf(-x));
    case DeviceActivation::kGelu:
      return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case DeviceActivation::kGeluTanh: {
      const float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
      return 0.5f * x * (1.0f + tanhf(inner));
    }
    default:
      return x > 0.0f || isnan(x) ? x : 0.0f;
  }
}

__global__ void __launch_bounds__(kThreads) activate_kernel(ActivateParams p) {
  for_element(p.rows, p.columns, [&](int64_t row, int64_t column) {
    const float value = apply(p.activation, p.gate[row * p.gate_stride + column]);
    p.out[row * p.out_stride + column] =
        p.up == nullptr ? value : __fmul_rn(value, p.up[row * p.up_stride + column]);
  });
}

__global__ void __launch_bounds__(kThreads) soft_cap_kernel(SoftCapParams p) {
  for_element(p.rows, p.columns, [&](int64_t row, int64_t column) {
    float& x = p.x[row * p.x_stride + column];
    x = p.cap * tanhf(x / p.cap);
  });
}

__global__ void __launch_bounds__(kThreads) add_kernel(AddParams p) {
  for_element(p.rows, p.columns, [&](int64_t row, int64_t column) {
    p.x[row * p.x_stride + column] += p.y[row * p.y_stride + column];
  });
}

__global__ void __launch_bounds__(kThreads) gather_kernel(GatherParams p) {
  for_element(p.rows, p.columns, [&](int64_t row, int64_t column) {
    p.out[row * p.out_stride + column] = p.x[p.indices[row] * p.x_stride + column];
  });
}

template <typename T>
__global__ void __launch_bounds__(kThreads) embedding_kernel(EmbeddingParams p) {
  for_element(p.rows, p.columns, [&](int64_t row, int64_t column) {
    const T* table = reinterpret_cast<const T*>(p.table) + p.ids[row] * p.columns;
    p.out[row * p.out_stride + column] = to_float(table[column]) * p.scale;
  });
}

}  // namespace

Status activate(const ActivateParams& params, device::Stream& stream) {
  activate_kernel<<<blocks_for(params.rows * params.columns, kThreads), kThreads, 0,
                    handle(stream)>>>(params);
  return stream.launched("activate");
}

Status soft_cap(const SoftCapParams& params, device::Stream& stream) {
  soft_cap_kernel<<<blocks_for(params.rows * params.columns, kThreads), kThreads, 0,
                    handle(stream)>>>(params);
  return stream.launched("soft_cap");
}

Status add(const AddParams& params, device::Stream& stream) {
  add_kernel<<<blocks_for(params.rows * params.columns, kThreads), kThreads, 0, handle(stream)>>>(
      params);
  return stream.launched("add");
}

Status gather_rows(const GatherParams& params, device::Stream& stream) {
  gather_kernel<<<blocks_for(params.rows * params.columns, kThreads), kThreads, 0,
                  handle(stream)>>>(params);
  return stream.launched("gather_rows");
}

Status embedding(const EmbeddingParams& params, device::Stream& stream) {
  const unsigned blocks = blocks_for(params.rows * params.columns, kThreads);
  switch (params.format) {
    case WeightFormat::kF32:
      embedding_kernel<float><<<blocks, kThreads, 0, handle(stream)>>>(params);
      break;
    case WeightFormat::kF16:
      embedding_kernel<__half><<<blocks, kThreads, 0, handle(stream)>>>(params);
      break;
    case WeightFormat::kBF16:
      embedding_kernel<__nv_bfloat16><<<blocks, kThreads, 0, handle(stream)>>>(params);
      break;
    default:
      return unsupported("no CUDA embedding kernel for this format");
  }
  return stream.launched("embedding");
}

}  // namespace pelton::kernels::cuda
