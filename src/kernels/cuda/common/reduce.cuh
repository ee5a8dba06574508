// Sums over a warp and over a block, in an order that depends on neither the grid nor the data.
#pragma once

#include <cuda_runtime.h>

namespace pelton::kernels::cuda {

// Every lane gets the sum.
__device__ inline float warp_sum(float v) {
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, step);
  return v;
}

__device__ inline float warp_max(float v) {
  for (int step = 16; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, step));
  return v;
}

// Every thread of a block of whole warps (at most 32) gets the sum; all must call it.
__device__ inline float block_sum(float v) {
  __shared__ float partial[32];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  v = warp_sum(v);
  __syncthreads();  // a sum before this one may still be read
  if (lane == 0) partial[warp] = v;
  __syncthreads();
  return warp_sum(lane < static_cast<int>(blockDim.x) / 32 ? partial[lane] : 0.0f);
}

}  // namespace pelton::kernels::cuda
