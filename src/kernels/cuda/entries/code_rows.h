// Scratch of products with FP8 weights whose rows become FP8 as they come: codes, a scale a row,
// and what the product itself asks for. Every part begins at a multiple of 256 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/params/device_kernels.h"

namespace pelton::kernels::cuda {

inline constexpr size_t code_rows_padded(int64_t bytes) {
  return (static_cast<size_t>(bytes) + 255) / 256 * 256;
}
inline constexpr size_t code_rows_bytes(int64_t m, int64_t k) {
  return code_rows_padded(m * k) + code_rows_padded(4 * m);
}

// Blocks of gemm that share K: two where two rows of tiles of 128 by 128 leave half of the chip
// idle and K is long enough to make up for adding their sums.
inline constexpr int32_t code_splits(const MatmulProblem& p) {
  constexpr int64_t kOutputs = 33 * 128;
  constexpr int64_t kInputs = 8192;
  const bool is_plain = p.layout == WeightLayout::kFp8Channels && !p.gated && !p.bias;
  const bool is_few = p.m > 128 && p.m <= 256 && p.n <= kOutputs;
  return is_plain && is_few && p.k >= kInputs ? 2 : 1;
}
inline constexpr size_t code_splits_bytes(const MatmulProblem& p) {
  const int64_t splits = code_splits(p);
  return splits == 1 ? 0 : code_rows_padded(4 * splits * p.m * p.n);
}

}  // namespace pelton::kernels::cuda
