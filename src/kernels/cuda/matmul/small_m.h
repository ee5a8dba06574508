// Products of few activation rows (1 <= m <= 32) with a large weight matrix: out = x W^T, the
// products of decoding, whose time is the time of streaming W once.
//
// Computes, for row i and output j < n:   sum_k x[i][k] W[j][k] * scale[j] + bias[j] (+ residual),
// or with Epilogue::kSiluMul, W holding the gate rows and then as many up rows:
//   silu(gate_j) * up_j for j < n / 2.
//
// Parallel plan: output rows in tiles of 16, spread evenly over the blocks (one per SM, two for
// large FP8 and int4 weights, resident for the whole product); inside a block four slices of warps
// share K in boxes of 128 bytes of W, each slice with its own ring in shared memory, together 60 to
// 90 KB in flight. Where n alone fills the chip badly, two blocks of a cluster halve K
// (`small_m_split`). W is read once, x once for each pass of up to 64 output rows (from L2).
//
// With `norm_weight`, x are f32 rows and W multiplies their RMS norms, rounded to bf16: each block
// makes these of its own in shared memory, with the order of sums of elementwise/norm.cu.
//
// Numerics: BF16 operands, FP32 accumulation by the matrix units. Int4 sums each group of 128
// alone, on codes as they lie (0 to 15), takes eight times the sum of x off, and adds it, scaled,
// in FP32. The order of every sum is a function of (format, n, k, epilogue) alone, so a row's bits
// do not depend on m or on the other rows.
//
// Programmatic launch: W, scale and bias are read before the kernel directly ahead has ended, so it
// must not write them. x, residual and out are not touched before.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace pelton::kernels::cuda {

enum class SmallMWeight : uint8_t {
  kBF16,      // [n][k] bf16, rows contiguous; k a multiple of 8
  kFp8,       // [n][k] E4M3 without NaN, rows contiguous; k a multiple of 16; scale [n] required
  kInt8,      // [n][k] int8, likewise
  kInt4G128,  // blocks of int4_pack.h; k a multiple of 128
};

enum class SmallMEpilogue : uint8_t { kNone, kSiluMul };

struct SmallMArgs {
  const void* x = nullptr;             // [m][k] bf16; with FP8 and int4 weights |x| < 2^28
  int64_t x_stride = 0;                // elements between rows, a multiple of 8
  const float* norm_weight = nullptr;  // [k], 16-byte aligned, optional
  float norm_eps = 0.0f;
  const void* weight = nullptr;  // 16-byte aligned
  SmallMWeight format = SmallMWeight::kBF16;
  SmallMEpilogue epilogue = SmallMEpilogue::kNone;
  const float* scale = nullptr;    // [n], FP8 and int8 only
  const float* bias = nullptr;     // [n], optional
  const void* residual = nullptr;  // [m][n] of out's type and stride, optional; may be out itself
  void* out = nullptr;             // [m][n], with kSiluMul [m][n / 2]
  int64_t out_stride = 0;          // elements between rows
  bool out_f32 = false;            // else bf16
  int32_t m = 0;
  int32_t n = 0;
  int32_t k = 0;
  bool programmatic = true;
};

// Whether k, n and the scale are as the weight's format asks, of wide_m's products too.
bool fits_format(const SmallMArgs& args);
// Blocks that share K for this shape: 1 or 2. Part of the numerics, so no property of m.
int small_m_split(const SmallMArgs& args);
// Whether norms of m rows of k fit into a block's shared memory.
bool small_m_fits_norm(int64_t m, int64_t k);
// m = 0 is supported and launches nothing. x and weight must be 16-byte aligned.
bool supports(const SmallMArgs& args);
// Needs no workspace. cudaErrorNotSupported where supports() is false.
cudaError_t launch_small_m(const SmallMArgs& args, cudaStream_t stream);

}  // namespace pelton::kernels::cuda
