// The launches of small_m by format; arguments were checked.
#pragma once

#include "kernels/cuda/matmul/small_m.h"

namespace pelton::kernels::cuda {

// Of an H200. The cut of K follows it, so it is a constant and not a property of the device.
inline constexpr int kSmallMMultiprocessors = 132;

// Tiles of 16 rows of W, with kSiluMul pairs of them.
inline int small_m_units(const SmallMArgs& a) {
  const int rows = a.epilogue == SmallMEpilogue::kSiluMul ? a.n / 2 : a.n;
  return (rows + 15) / 16;
}

cudaError_t launch_small_m_bf16(const SmallMArgs& args, cudaStream_t stream);
cudaError_t launch_small_m_fp8(const SmallMArgs& args, cudaStream_t stream);
cudaError_t launch_small_m_int8(const SmallMArgs& args, cudaStream_t stream);
cudaError_t launch_small_m_int4(const SmallMArgs& args, cudaStream_t stream);

}  // namespace pelton::kernels::cuda
