// What every entry tells gemm of a product, its operands apart.
#pragma once

#include "kernels/cuda/matmul/gemm.h"
#include "kernels/params/device_kernels.h"

namespace pelton::kernels::cuda {

// Of bf16 rows with a bf16 weight; an entry with other operands says so.
inline GemmArgs gemm_args(const MatmulParams& p) {
  const MatmulProblem& problem = p.problem;
  GemmArgs a;
  a.x = p.x.data;
  a.x_stride = p.x.stride;
  a.weight = p.weight;
  a.epilogue = problem.gated ? GemmEpilogue::kSiluMul : GemmEpilogue::kNone;
  a.bias = p.bias;
  a.out = p.out.data;
  a.out_stride = p.out.stride;
  a.out_f32 = p.out.type == DType::kF32;
  if (problem.accumulate) {
    a.residual = static_cast<const float*>(p.out.data);
    a.residual_stride = p.out.stride;
  }
  a.m = static_cast<int32_t>(problem.m);
  a.n = static_cast<int32_t>(problem.n);
  a.k = static_cast<int32_t>(problem.k);
  return a;
}

}  // namespace pelton::kernels::cuda
