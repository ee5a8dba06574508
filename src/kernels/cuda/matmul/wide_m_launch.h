// The launches of wide_m by format; arguments were checked.
#pragma once

#include "kernels/cuda/matmul/wide_m.h"

namespace pelton::kernels::cuda {

// Blocks that share K: as many as keep to one wave of two blocks a multiprocessor of an H200, and
// give each four boxes. Part of the numerics, so no property of m or of the device.
inline int wide_m_split(int tiles, int k_boxes) {
  constexpr int kBlocks = 2 * 132;
  int split = 4;
  while (split > 1 && (tiles * split > kBlocks || k_boxes < 4 * split)) split /= 2;
  return split;
}

cudaError_t launch_wide_m_bf16(const WideMArgs& args, cudaStream_t stream);
cudaError_t launch_wide_m_fp8(const WideMArgs& args, cudaStream_t stream);
cudaError_t launch_wide_m_int8(const WideMArgs& args, cudaStream_t stream);
cudaError_t launch_wide_m_int4(const WideMArgs& args, cudaStream_t stream);

}  // namespace pelton::kernels::cuda
