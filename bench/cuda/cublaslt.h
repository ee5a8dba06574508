// NVIDIA's cuBLASLt as a point of comparison, opened at run time; only its stable entry points are
// declared, so building needs neither its headers nor its library.
#pragma once

#include <cuda_runtime.h>

#include <memory>

namespace pelton::bench_cuda {

class CublasLt {
 public:
  // Null where the library cannot be opened.
  static std::unique_ptr<CublasLt> open();
  ~CublasLt();

  // out [m][n] = x [m][k] w^T, w [n][k]; all bf16, rows contiguous. The algorithm is the library's
  // first choice. False if it has none.
  bool product(const void* x, const void* w, void* out, int m, int n, int k, cudaStream_t stream);

 private:
  CublasLt() = default;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pelton::bench_cuda
