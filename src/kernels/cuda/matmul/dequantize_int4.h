// 4-bit weights (int4_pack.h) as BF16 rows, for products of so many rows that writing W once costs
// little beside them: (code - 8) * scale, rounded once.
//
// Parallel plan: a thread takes eight inputs of one row, from four words of the block.
//
// Programmatic launch: nothing is written before the kernel ahead has ended.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace pelton::kernels::cuda {

struct DequantizeInt4Args {
  const void* weight = nullptr;  // int4_packed_bytes(n, k), 16-byte aligned
  void* out = nullptr;           // [n][k] bf16, end to end, 16-byte aligned
  int32_t n = 0;
  int32_t k = 0;  // a multiple of 128
  bool programmatic = true;
};

bool supports(const DequantizeInt4Args& args);
// cudaErrorNotSupported where supports() is false.
cudaError_t launch_dequantize_int4(const DequantizeInt4Args& args, cudaStream_t stream);

}  // namespace pelton::kernels::cuda
