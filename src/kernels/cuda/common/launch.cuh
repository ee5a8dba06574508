// What every launch needs: the stream's handle, grids, and launches that overlap.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "device/stream.h"

namespace pelton::kernels::cuda {

inline cudaStream_t handle(device::Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

inline unsigned blocks_for(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

// Launches a kernel that may begin before the one ahead of it has ended: it must call
// enter_chain() before it reads or writes anything that a kernel ahead touches. An error is found
// by Stream::launched.
template <typename Params>
void launch_chained(void (*kernel)(Params), dim3 grid, unsigned threads, const Params& params,
                    cudaStream_t stream) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, params));
}

// Waits for everything ahead, then lets the next kernel begin. In this order, so that a kernel that
// began early knows that all but its direct predecessor have ended.
__device__ inline void enter_chain() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace pelton::kernels::cuda
