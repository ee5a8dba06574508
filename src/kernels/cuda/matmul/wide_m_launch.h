// The launches of wide_m by format; arguments were checked.
#pragma once

#include <algorithm>

#include "kernels/cuda/matmul/wide_m.h"

namespace pelton::kernels::cuda {

// Blocks that share K, for `tiles` of 128 rows of W: as many as find a place at once on an H200,
// two on a multiprocessor, or one of more than 64 rows of x and weights that are unpacked in
// registers; with four boxes each. Part of the numerics, so no property of m or of the device. More
// than six do not find a cluster's multiprocessors side by side.
inline int wide_m_split(int tiles, int k_boxes, bool is_unpacked) {
  const int most = tiles <= 32 ? 6 : tiles <= 66 ? (is_unpacked ? 2 : 4) : tiles <= 132 ? 2 : 1;
  return std::clamp(k_boxes / 4, 1, most);
}

// Whether blocks of more than 64 rows of x take 256 rows of W: x passes half as often then, and
// more blocks than these would not all find a place.
inline bool wide_m_is_tall(int tiles, int split) { return tiles * split > (split > 2 ? 96 : 132); }

cudaError_t launch_wide_m_bf16(const WideMArgs& args, cudaStream_t stream);
cudaError_t launch_wide_m_fp8(const WideMArgs& args, cudaStream_t stream);
cudaError_t launch_wide_m_int8(const WideMArgs& args, cudaStream_t stream);
cudaError_t launch_wide_m_int4(const WideMArgs& args, cudaStream_t stream);

}  // namespace pelton::kernels::cuda
