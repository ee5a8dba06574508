// NVIDIA's cuBLASLt, opened at run time; only its stable entry points are declared, so building
// needs neither its headers nor its library. Safe from several threads.
//
// The algorithm is chosen for m rounded up to an eighth of a power of two, once for each such m:
// the plans kept are few, and a step asks for nothing that an earlier one of its size has asked
// for. The library may cut K among blocks (only `may_split` problems, with sums in f32) and takes
// other tiles for other m: a row's bits depend on m.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/library/open_library.h"

namespace pelton::kernels::cuda {

enum class CublasLtType : uint8_t { kBF16, kFp8 };  // of x and of W; FP8 is E4M3

// out [m][n] = x [m][k] W^T, W [n][k], rows of W contiguous.
struct CublasLtProblem {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t x_stride = 0;    // elements between rows; 0: k
  int64_t out_stride = 0;  // 0: n
  CublasLtType type = CublasLtType::kBF16;
  bool out_f32 = false;            // else bf16
  bool accumulate = false;         // out += product
  bool fast_accumulation = false;  // FP8: sums stay in the matrix unit, about 14 bits
  bool row_scales = false;         // FP8: one scale a row of x and of W, else one for each tensor
  bool may_split = true;
  // So many products of matrices that lie so many elements apart.
  int32_t batch = 1;
  int64_t x_step = 0;
  int64_t weight_step = 0;
  int64_t out_step = 0;
  auto operator<=>(const CublasLtProblem&) const = default;
};

struct CublasLtOperands {
  const void* x = nullptr;  // 16-byte aligned, like all of these
  const void* weight = nullptr;
  void* out = nullptr;
  const float* x_scale = nullptr;  // on the device; FP8 per tensor: null stands for 1
  const float* w_scale = nullptr;
  // CublasLt::kWorkspace bytes, used by one product at a time; the part from the first multiple of
  // 256 on.
  void* workspace = nullptr;
};

class CublasLt {
 public:
  static constexpr size_t kWorkspaceAlignment = 256;
  static constexpr size_t kWorkspace = (size_t{32} << 20) + kWorkspaceAlignment;

  // Null where the library cannot be opened or does not start (no driver, say); `why` says which.
  static std::unique_ptr<CublasLt> open(const LibrarySearch& search, std::string* why);
  ~CublasLt();

  // The file that was opened.
  const std::string& path() const { return path_; }

  // Finds the algorithm, so that `product` need not: false where the library has none.
  bool prepare(const CublasLtProblem& problem);
  // Queues the product on `stream` (a cudaStream_t). Empty, or what went wrong.
  std::string product(const CublasLtProblem& problem, const CublasLtOperands& operands,
                      void* stream);

 private:
  CublasLt();
  std::string path_;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pelton::kernels::cuda
