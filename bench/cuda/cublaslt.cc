#include "cublaslt.h"

#include <utility>

namespace pelton::bench_cuda {

using kernels::cuda::CublasLtOperands;
using kernels::cuda::CublasLtProblem;

std::unique_ptr<CublasLt> CublasLt::open() {
  std::string why;
  auto library = kernels::cuda::CublasLt::open({}, &why);
  if (library == nullptr) return nullptr;
  auto lt = std::make_unique<CublasLt>();
  lt->library_ = std::move(library);
  return lt;
}

bool CublasLt::product(const void* x, const void* w, void* out, int m, int n, int k,
                       cudaStream_t stream) {
  CublasLtProblem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  return product(problem, {x, w, out, nullptr, nullptr, nullptr}, stream);
}

bool CublasLt::prepare(const CublasLtProblem& problem) { return library_->prepare(problem); }

bool CublasLt::product(const CublasLtProblem& problem, CublasLtOperands operands,
                       cudaStream_t stream) {
  operands.workspace = workspace_.as<void>();
  return library_->product(problem, operands, stream).empty();
}

}  // namespace pelton::bench_cuda
