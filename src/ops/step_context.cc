#include "ops/step_context.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cuda/library/cublaslt.h"
#include "kernels/cuda/list.h"
#include "kernels/params/device_kernels.h"
#include "ops/device_weights.h"

namespace pelton::ops {

const kernels::CpuKernels& kernels_of(IsaLevel level) { return kernels::kernels_for(level); }

const kernels::DeviceKernels& cuda_kernels() { return kernels::cuda::device_kernels(); }

std::shared_ptr<kernels::cuda::CublasLt> open_cublaslt(std::span<const std::string> folders,
                                                       std::string* why) {
  kernels::cuda::LibrarySearch search;
  search.folders.assign(folders.begin(), folders.end());
  search.python_prefixes.insert(search.python_prefixes.begin(), folders.begin(), folders.end());
  return kernels::cuda::CublasLt::open(search, why);
}

size_t zeroed_bytes(const kernels::DeviceKernels& kernels) { return kernels.zeroed_bytes; }

Status random_weights(const kernels::DeviceKernels& kernels, device::Stream& stream,
                      const kernels::RandomWeightsParams& params) {
  if (kernels.random_weights == nullptr)
    return unsupported("this device's kernels make no random weights");
  return kernels.random_weights(params, stream);
}

Status copy_within(const kernels::DeviceKernels& kernels, device::Stream& stream, void* target,
                   const void* source, size_t bytes) {
  if (kernels.copy == nullptr) return stream.copy_within(target, source, bytes);
  return kernels.copy({.from = static_cast<const std::byte*>(source),
                       .to = static_cast<std::byte*>(target),
                       .bytes = static_cast<int64_t>(bytes)},
                      stream);
}

void StepContext::show(std::string_view name, const Tensor& tensor) const {
  if (!sink->wants(layer, name)) return;
  if (device == nullptr) return sink->on_tensor(layer, name, tensor);
  const int64_t columns = tensor.row_elements();
  const auto count = static_cast<size_t>(tensor.num_rows() * columns);
  const auto element = static_cast<size_t>(dtype_bytes(tensor.dtype));
  std::vector<std::byte> bytes(count * element);
  const size_t row_bytes = static_cast<size_t>(columns) * element;
  for (int64_t t = 0; t < tensor.num_rows(); ++t) {
    const auto* row = static_cast<const std::byte*>(tensor.data) +
                      static_cast<size_t>(t * tensor.row_stride) * element;
    const Status s = device->stream->copy_to_host(bytes.data() + static_cast<size_t>(t) * row_bytes,
                                                  row, row_bytes);
    check(s.ok(), s.message());
  }
  const Status s = device->stream->finish();
  check(s.ok(), s.message());
  std::vector<float> values(count);
  if (tensor.dtype == DType::kF32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else {
    check(tensor.dtype == DType::kBF16, "a traced tensor is f32 or bf16");
    for (size_t i = 0; i < count; ++i) {
      uint16_t bits;
      std::memcpy(&bits, bytes.data() + i * sizeof(bits), sizeof(bits));
      values[i] = bf16_to_f32(bits);
    }
  }
  Tensor copy = tensor;
  copy.dtype = DType::kF32;
  copy.data = values.data();
  copy.row_stride = columns;
  sink->on_tensor(layer, name, copy);
}

}  // namespace pelton::ops
