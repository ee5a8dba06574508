// The preparation of attention for heads of 64, 128 and 256 elements that rotate whole or not at
// all, into bf16 or FP8 pages: what a step of many rows wants to be fast.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params/device_kernels.h"

namespace pelton::kernels::cuda {

// False where the parameters are of another kind; nothing is launched then.
bool launch_prepare_heads(const PrepareParams& params, cudaStream_t stream);

}  // namespace pelton::kernels::cuda
