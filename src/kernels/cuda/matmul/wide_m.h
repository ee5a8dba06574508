// Products of 9 to 128 activation rows with weights of any decode format: out = x W^T as small_m.h
// says, for batches too large to stream W past a few rows and too small to fill the chip with tiles
// of out.
//
// Parallel plan: W's rows are the rows of the warpgroup matrix instruction and x's rows its
// columns, so few rows of x cost little. A tile is 128 rows of W (with kSiluMul 64 gate rows and
// their 64 up rows) and all of x; two warpgroups take 64 rows each. Integer weights and more than
// 64 rows of x take tiles of 256 rows where those are enough for the chip. A block has one tile, or
// where the tiles alone are too few for the chip, a cluster of 2 to 6 blocks shares its K and adds
// their sums through each other's shared memory, in the order of K. W is read once, x once a tile
// (from L2).
//
// FP8: both operands are codes and go from shared memory to the matrix unit; the rows' scales and
// the channels' meet the sums. 8-bit and 4-bit integer weights become bf16 in registers, from where
// the instruction takes them. BF16 weights stay in shared memory.
//
// Numerics: FP32 accumulation, of FP8 codes by the matrix unit alone (about 14 bits). A 4-bit
// weight is (code - 8) * scale rounded once to bf16, of a scale rounded to bf16: within 2^-8 of the
// weight. The order of sums is a function of (format, n, k, epilogue) alone.
//
// Programmatic launch: as small_m.h.
#pragma once

#include "kernels/cuda/matmul/small_m.h"

namespace pelton::kernels::cuda {

inline constexpr int32_t kWideMColumns = 128;  // of one launch

struct WideMArgs {
  SmallMArgs product;              // m up to kWideMColumns; FP8: x holds E4M3 codes, strides of 16
  const float* x_scale = nullptr;  // [m], FP8 only
};

// m = 0 is supported and launches nothing.
bool supports(const WideMArgs& args);
// cudaErrorNotSupported where supports() is false.
cudaError_t launch_wide_m(const WideMArgs& args, cudaStream_t stream);

}  // namespace pelton::kernels::cuda
