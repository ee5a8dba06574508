// The launches of wide_m by format; arguments were checked.
#pragma once

#include "kernels/cuda/matmul/wide_m.h"

namespace pelton::kernels::cuda {

// Of an H200. The cut of K follows it, so it is a constant and not a property of the device.
inline constexpr int kWideMBlocks = 132;

cudaError_t launch_wide_m_bf16(const WideMArgs& args, cudaStream_t stream);
cudaError_t launch_wide_m_fp8(const WideMArgs& args, cudaStream_t stream);
cudaError_t launch_wide_m_int8(const WideMArgs& args, cudaStream_t stream);
cudaError_t launch_wide_m_int4(const WideMArgs& args, cudaStream_t stream);

}  // namespace pelton::kernels::cuda
