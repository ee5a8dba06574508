// What every launch needs: the stream's handle and grids.
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

}  // namespace pelton::kernels::cuda
