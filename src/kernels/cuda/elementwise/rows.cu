// Activations, soft cap, residual, gathering and embedding: a thread an element, each read and
// written once. Functions in f32 without the fast approximations.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/rows.cuh"
#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Calls element(row, column) for this thread's element.
template <typename Element>
__device__ void for_element(int64_t rows, int64_t columns, const Element& element) {
  enter_chain();
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
    const float value = apply(p.activation, load_at(p.gate, row, column));
    store_at(p.out, row, column,
             p.up.data == nullptr ? value : __fmul_rn(value, load_at(p.up, row, column)));
  });
}

__global__ void __launch_bounds__(kThreads) soft_cap_kernel(SoftCapParams p) {
  for_element(p.rows, p.columns, [&](int64_t row, int64_t column) {
    store_at(p.x, row, column, p.cap * tanhf(load_at(p.x, row, column) / p.cap));
  });
}

__global__ void __launch_bounds__(kThreads) add_kernel(AddParams p) {
  for_element(p.rows, p.columns, [&](int64_t row, int64_t column) {
    store_at(p.x, row, column, load_at(p.x, row, column) + load_at(p.y, row, column));
  });
}

__global__ void __launch_bounds__(kThreads) gather_kernel(GatherParams p) {
  for_element(p.rows, p.columns, [&](int64_t row, int64_t column) {
    store_at(p.out, row, column, load_at(p.x, p.indices[row], column));
  });
}

template <typename T>
__global__ void __launch_bounds__(kThreads) embedding_kernel(EmbeddingParams p) {
  for_element(p.rows, p.columns, [&](int64_t row, int64_t column) {
    const T* table = reinterpret_cast<const T*>(p.table) + p.ids[row] * p.columns;
    store_at(p.out, row, column, to_float(table[column]) * p.scale);
  });
}

template <typename Params>
void launch(void (*kernel)(Params), const Params& params, device::Stream& stream) {
  launch_chained(kernel, blocks_for(params.rows * params.columns, kThreads), kThreads, params,
                 handle(stream));
}

}  // namespace

Status activate(const ActivateParams& params, device::Stream& stream) {
  launch(activate_kernel, params, stream);
  return stream.launched("activate");
}

Status soft_cap(const SoftCapParams& params, device::Stream& stream) {
  launch(soft_cap_kernel, params, stream);
  return stream.launched("soft_cap");
}

Status add(const AddParams& params, device::Stream& stream) {
  launch(add_kernel, params, stream);
  return stream.launched("add");
}

Status gather_rows(const GatherParams& params, device::Stream& stream) {
  launch(gather_kernel, params, stream);
  return stream.launched("gather_rows");
}

Status embedding(const EmbeddingParams& params, device::Stream& stream) {
  switch (params.format) {
    case WeightFormat::kF32:
      launch(embedding_kernel<float>, params, stream);
      break;
    case WeightFormat::kF16:
      launch(embedding_kernel<__half>, params, stream);
      break;
    case WeightFormat::kBF16:
      launch(embedding_kernel<__nv_bfloat16>, params, stream);
      break;
    default:
      return unsupported("no CUDA embedding kernel for this format");
  }
  return stream.launched("embedding");
}

}  // namespace pelton::kernels::cuda
