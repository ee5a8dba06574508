// Scratch of products with FP8 weights whose rows become FP8 as they come: codes, a scale a row,
// and what the product itself asks for. Every part begins at a multiple of 256 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pelton::kernels::cuda {

inline constexpr size_t code_rows_padded(int64_t bytes) {
  return (static_cast<size_t>(bytes) + 255) / 256 * 256;
}
inline constexpr size_t code_rows_bytes(int64_t m, int64_t k) {
  return code_rows_padded(m * k) + code_rows_padded(4 * m);
}

}  // namespace pelton::kernels::cuda
