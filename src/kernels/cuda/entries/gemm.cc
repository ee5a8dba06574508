// Products of many rows as an entry of the list. What does not lie as the kernel wants it goes
// through small_m, in whose rows the list would otherwise have put it.
#include "kernels/cuda/matmul/gemm.h"

#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {

Status matmul_gemm(const MatmulParams& p, device::Stream& stream) {
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
  if (!supports(a)) return matmul_small_m(p, stream);
  launch_gemm(a, static_cast<cudaStream_t>(stream.native()));
  return stream.launched("gemm");
}

}  // namespace pelton::kernels::cuda
