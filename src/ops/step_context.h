// Everything an op needs besides its tensors: scratch, threads, the kernel table, and the trace
// hook. Passed down the forward, never global. In plan mode (a counting arena) ops only take their
// scratch and return.
#pragma once

#include <string_view>

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "core/trace.h"
#include "kernels/params/matmul.h"
#include "memory/step_arena.h"

namespace pelton::kernels {
struct CpuKernels;
}

namespace pelton::ops {

// The kernels of one ISA level, for a context.
const kernels::CpuKernels& kernels_of(IsaLevel level);

struct StepContext {
  memory::StepArena& arena;
  ThreadPool& pool;
  const kernels::CpuKernels& cpu;
  kernels::ActivationPrecision activations = kernels::ActivationPrecision::kInt8;
  TraceSink* sink = nullptr;
  int layer = -1;  // set by the forward, for trace names

  bool planning() const { return arena.is_counting(); }
  void trace(std::string_view name, const Tensor& tensor) const {
    if (sink != nullptr && !planning()) [[unlikely]] {
      sink->on_tensor(layer, name, tensor);
    }
  }
};

}  // namespace pelton::ops
