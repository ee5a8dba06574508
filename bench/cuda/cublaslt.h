// NVIDIA's cuBLASLt as a point of comparison, with a workspace of its own.
#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "harness.h"
#include "kernels/cuda/library/cublaslt.h"

namespace pelton::bench_cuda {

class CublasLt {
 public:
  // Null where the library cannot be opened.
  static std::unique_ptr<CublasLt> open();

  // out [m][n] = x [m][k] w^T, w [n][k]; all bf16, rows contiguous. The algorithm is the library's
  // first choice. False if it has none.
  bool product(const void* x, const void* w, void* out, int m, int n, int k, cudaStream_t stream);

  bool prepare(const kernels::cuda::CublasLtProblem& problem);
  bool product(const kernels::cuda::CublasLtProblem& problem,
               kernels::cuda::CublasLtOperands operands, cudaStream_t stream);

 private:
  std::unique_ptr<kernels::cuda::CublasLt> library_;
  Buffer workspace_{kernels::cuda::CublasLt::kWorkspace};
};

}  // namespace pelton::bench_cuda
