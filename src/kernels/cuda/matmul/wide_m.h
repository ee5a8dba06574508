// Products of 9 to 128 activation rows with weights of any decode format: out = x W^T as small_m.h
// says, for batches too large to stream W past a few rows and too small to fill the chip with tiles
// of out.
//
// Parallel plan: W's rows are the rows of the warpgroup matrix instruction and x's rows its
// columns, so few rows of x cost little. A unit is 128 rows of W (with kSiluMul 64 gate rows and
// their 64 up rows) and all of x; two warpgroups take 64 rows each. The list of (unit, box of K) is
// cut evenly over one block a multiprocessor, whatever the shape; a unit's parts meet in the
// workspace, and whoever brings the last adds them in the order of K. W is read once, x once a unit
// (from L2).
//
// FP8 and 4-bit weights become bf16 in registers, from where the instruction takes them; BF16 ones
// stay in shared memory.
//
// Numerics: BF16 operands, FP32 accumulation. FP8 codes are exact in bf16 and scaled at the end. A
// 4-bit weight is (code - 8) * scale rounded once to bf16, of a scale rounded to bf16: within 2^-8
// of the weight. The order of sums is a function of (format, n, k, epilogue) alone.
//
// Programmatic launch: as small_m.h.
#pragma once

#include "kernels/cuda/matmul/small_m.h"

namespace pelton::kernels::cuda {

inline constexpr int32_t kWideMColumns = 128;  // of one launch

struct WideMArgs {
  SmallMArgs product;         // m up to kWideMColumns
  void* workspace = nullptr;  // wide_m_workspace bytes, 16-byte aligned, of any contents
  void* counters = nullptr;   // wide_m_counters bytes, zero, and left zero
};

// Not smaller for more rows.
size_t wide_m_workspace(int64_t m);
size_t wide_m_counters(int64_t n);
// m = 0 is supported and launches nothing.
bool supports(const WideMArgs& args);
// cudaErrorNotSupported where supports() is false.
cudaError_t launch_wide_m(const WideMArgs& args, cudaStream_t stream);

}  // namespace pelton::kernels::cuda
