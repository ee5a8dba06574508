// Everything an op needs besides its tensors: scratch, threads or a device, the kernels, and the
// trace hook. Passed down the forward, never global. In plan mode (a counting arena) ops only take
// their scratch and return.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "core/trace.h"
#include "device/device.h"
#include "kernels/params/matmul.h"
#include "memory/mirror.h"
#include "memory/step_arena.h"

namespace pelton::kernels {
struct CpuKernels;
struct DeviceKernels;
namespace cuda {
class CublasLt;
}
}  // namespace pelton::kernels

namespace pelton::ops {

// The kernels of one ISA level, for a context.
const kernels::CpuKernels& kernels_of(IsaLevel level);
// The CUDA backend's; in a build without it their launches refuse.
const kernels::DeviceKernels& cuda_kernels();
// NVIDIA's cuBLASLt, looked for in `folders` (of libraries, or roots of Python environments), by
// its names, in Python packages. Null where there is none; `why` then says so.
std::shared_ptr<kernels::cuda::CublasLt> open_cublaslt(std::span<const std::string> folders,
                                                       std::string* why);
// DeviceStep::zeroed's size for these kernels.
size_t zeroed_bytes(const kernels::DeviceKernels& kernels);
// Copies device memory by a kernel where there is one, as fast as its memory allows: 16-byte
// aligned addresses, a multiple of 16 bytes.
Status copy_within(const kernels::DeviceKernels& kernels, device::Stream& stream, void* target,
                   const void* source, size_t bytes);

// The device that a step runs on. Tensors, weights and pages are then in its memory, and the host
// integers of the step (ids, positions, slots, slices, tables, rows) lie in `inputs`, which was
// sent before the forward.
struct DeviceStep {
  const device::Caps& caps;
  const kernels::DeviceKernels& kernels;
  device::Stream* stream = nullptr;        // null in plan mode
  const memory::Mirror* inputs = nullptr;  // null in plan mode
  std::byte* zeroed = nullptr;             // kernels.zeroed_bytes that each launch leaves zero
  // The longest context that a sequence may ever have here; kernels are chosen and their grids cut
  // for it, so that neither follows today's lengths. 0: today's longest.
  int32_t max_context = 0;
  // A row's bits must not depend on whether its step prefills or decodes, nor on how many rows it
  // has: the kernels that would break this are left out.
  bool invariant = false;
  // Whether products may be cuBLASLt's, and the library itself (null in plan mode).
  bool has_cublaslt = false;
  kernels::cuda::CublasLt* cublaslt = nullptr;
};

struct StepContext {
  memory::StepArena& arena;
  ThreadPool& pool;
  const kernels::CpuKernels& cpu;
  kernels::ActivationPrecision activations = kernels::ActivationPrecision::kInt8;
  TraceSink* sink = nullptr;
  int layer = -1;                      // set by the forward, for trace names
  const DeviceStep* device = nullptr;  // null: the CPU

  // Type of the tensors between ops. The residual stream, rotary angles and logits are f32 in any
  // case.
  DType activation_type() const {
    return device == nullptr || activations == kernels::ActivationPrecision::kF32 ? DType::kF32
                                                                                  : DType::kBF16;
  }
  // A tensor of that type in the step's arena.
  Tensor activation(int64_t rows, int64_t columns) const {
    return arena.rows(activation_type(), rows, columns);
  }
  bool planning() const { return arena.is_counting(); }
  void trace(std::string_view name, const Tensor& tensor) const {
    if (sink != nullptr && !planning()) [[unlikely]] {
      show(name, tensor);
    }
  }

 private:
  // From a device the sink sees a copy, and everything before it is waited for.
  void show(std::string_view name, const Tensor& tensor) const;
};

}  // namespace pelton::ops
