// What the entries of small_m and wide_m tell them of a product: rows [row, row + rows) of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/matmul/small_m.h"
#include "kernels/params/device_kernels.h"

namespace pelton::kernels::cuda {

inline SmallMWeight small_m_format(WeightLayout layout) {
  switch (layout) {
    case WeightLayout::kInt4Groups:
      return SmallMWeight::kInt4G128;
    case WeightLayout::kInt8Channels:
      return SmallMWeight::kInt8;
    case WeightLayout::kFp8Channels:
      return SmallMWeight::kFp8;
    default:
      return SmallMWeight::kBF16;
  }
}

inline SmallMArgs small_m_args(const MatmulParams& p, int64_t row, int64_t rows) {
  const MatmulProblem& problem = p.problem;
  SmallMArgs a;
  a.x = static_cast<const std::byte*>(p.x.data) + row * p.x.stride * dtype_bytes(p.x.type);
  a.x_stride = p.x.stride;
  a.norm_weight = problem.normed ? p.norm_weight : nullptr;
  a.norm_eps = p.norm_eps;
  a.weight = p.weight;
  a.format = small_m_format(problem.layout);
  a.epilogue = problem.gated ? SmallMEpilogue::kSiluMul : SmallMEpilogue::kNone;
  a.scale = p.scale;
  a.bias = p.bias;
  a.out = static_cast<std::byte*>(p.out.data) + row * p.out.stride * dtype_bytes(p.out.type);
  a.residual = problem.accumulate ? a.out : nullptr;
  a.out_stride = p.out.stride;
  a.out_f32 = p.out.type == DType::kF32;
  a.m = static_cast<int32_t>(rows);
  a.n = static_cast<int32_t>(problem.n);
  a.k = static_cast<int32_t>(problem.k);
  return a;
}

}  // namespace pelton::kernels::cuda
