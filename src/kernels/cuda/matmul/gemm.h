// Products of many activation rows: out = x W^T with BF16, E4M3 or int8 operands, the products of
// prefill and of large decode batches.
//
// Computes, for row i and output j < n:
//   scale[i][j] * sum_k x[i][k] W[j][k] + bias[j] (+ residual[i][j]),
// or with kSiluMul, W holding the gate rows and then as many up rows:
//   silu(gate_j) * up_j for j < n / 2.
//
// Parallel plan: output tiles of up to 128 rows by 256 or 128 columns, dealt to a resident grid in
// rectangles that share operands in L2. Two blocks of a cluster take tiles below one another: each
// brings its rows of x and half of the weight tile, which the copy engine delivers to both. In a
// block one warp keeps a ring of 128-byte boxes along k full and two groups of four warps multiply
// 64 rows each. The order of sums along K is the same for every tile shape: a row's bits depend
// neither on m nor on other rows. Where the tiles are too few for the chip, `splits` blocks
// share K and leave their sums in scratch, which a second kernel adds in one order.
//
// Numerics: FP32 accumulation by the matrix units; on E4M3 operands these keep about 14 bits, so
// `promote` adds every 128 of k to a sum in FP32 registers. Scales by block of 128 always do. Sums
// of int8 products are exact and rounded to FP32 once.
//
// Programmatic launch: nothing is read or written before the kernel ahead has ended.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace pelton::kernels::cuda {

enum class GemmType : uint8_t { kBF16, kFp8, kInt8 };  // of x and of W
enum class GemmScales : uint8_t {
  kNone,
  kRows,    // x_scale [m] and w_scale [n], either may be null
  kBlocks,  // x_scale [m][k / 128], w_scale [ceil(n / 128)][k / 128]
};
enum class GemmEpilogue : uint8_t { kNone, kSiluMul };

struct GemmArgs {
  const void* x = nullptr;       // [m][k], 16-byte aligned
  int64_t x_stride = 0;          // elements between rows; a multiple of 16 bytes
  const void* weight = nullptr;  // [n][k], 16-byte aligned
  GemmType type = GemmType::kBF16;
  GemmScales scales = GemmScales::kNone;
  bool promote = false;  // FP8
  GemmEpilogue epilogue = GemmEpilogue::kNone;
  const float* x_scale = nullptr;
  const float* w_scale = nullptr;
  const float* bias = nullptr;      // [n], optional
  const float* residual = nullptr;  // [m][columns of out], optional; may be out itself
  int64_t residual_stride = 0;
  void* out = nullptr;     // [m][n], with kSiluMul [m][n / 2]; 16-byte aligned
  int64_t out_stride = 0;  // elements between rows, a multiple of 8
  bool out_f32 = false;    // else bf16
  int32_t m = 0;
  int32_t n = 0;  // a multiple of 8, with kSiluMul of 16; with kSiluMul and kBlocks of 256
  int32_t k = 0;  // a multiple of 16 bytes; with kBlocks of 128
  // Beyond 1, so many blocks share K. Of FP8, without promote, kBlocks, kSiluMul, a bias, or a
  // residual that is not added in place to f32. A row's bits depend on it.
  int32_t splits = 1;
  float* split_sums = nullptr;  // scratch [splits][m][n], 16-byte aligned
  bool programmatic = true;
};

// Beyond, sums of int8 products may not fit into 32 bits.
inline constexpr int32_t kGemmInt8MostInputs = 1 << 17;

// m = 0 is supported and launches nothing.
bool supports(const GemmArgs& args);
// Needs no workspace but split_sums. cudaErrorNotSupported where supports() is false.
cudaError_t launch_gemm(const GemmArgs& args, cudaStream_t stream);

}  // namespace pelton::kernels::cuda
