// cuBLASLt's products as an entry of the list. What the library turns out not to take goes to gemm.
#include "kernels/cuda/library/cublaslt.h"

#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {
namespace {

bool is_aligned(const void* data, int64_t stride, DType type) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride * dtype_bytes(type) % 16 == 0;
}

}  // namespace

Status matmul_cublaslt(const MatmulParams& p, device::Stream& stream) {
  const MatmulProblem& problem = p.problem;
  const CublasLtProblem product = {.m = problem.m,
                                   .n = problem.n,
                                   .k = problem.k,
                                   .x_stride = p.x.stride,
                                   .out_stride = p.out.stride,
                                   .type = CublasLtType::kBF16,
                                   .out_f32 = p.out.type == DType::kF32,
                                   .accumulate = problem.accumulate};
  const bool is_regular = is_aligned(p.x.data, p.x.stride, p.x.type) &&
                          is_aligned(p.out.data, p.out.stride, p.out.type) &&
                          is_aligned(p.weight, problem.k, DType::kBF16);
  if (!is_regular || p.cublaslt == nullptr || !p.cublaslt->prepare(product))
    return matmul_gemm(p, stream);
  const std::string failed = p.cublaslt->product(
      product, {.x = p.x.data, .weight = p.weight, .out = p.out.data, .workspace = p.workspace},
      stream.native());
  if (!failed.empty()) return internal_error(failed);
  return stream.launched("cublaslt");
}

}  // namespace pelton::kernels::cuda
