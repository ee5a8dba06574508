#include "ops/step_context.h"

#include <vector>

#include "base/check.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cuda/list.h"

namespace pelton::ops {

const kernels::CpuKernels& kernels_of(IsaLevel level) { return kernels::kernels_for(level); }

const kernels::DeviceKernels& cuda_kernels() { return kernels::cuda::device_kernels(); }

void StepContext::show(std::string_view name, const Tensor& tensor) const {
  if (device == nullptr) return sink->on_tensor(layer, name, tensor);
  const int64_t columns = tensor.row_elements();
  std::vector<float> values(static_cast<size_t>(tensor.num_rows() * columns));
  for (int64_t t = 0; t < tensor.num_rows(); ++t) {
    const Status s = device->stream->copy_to_host(values.data() + t * columns, tensor.row_f32(t),
                                                  static_cast<size_t>(columns) * sizeof(float));
    check(s.ok(), s.message());
  }
  const Status s = device->stream->finish();
  check(s.ok(), s.message());
  Tensor copy = tensor;
  copy.data = values.data();
  copy.row_stride = columns;
  sink->on_tensor(layer, name, copy);
}

}  // namespace pelton::ops
