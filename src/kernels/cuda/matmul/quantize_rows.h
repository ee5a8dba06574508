// Activation rows, or their RMS norms, as E4M3 or int8 codes with one scale a row, for products
// with such weights.
//
// scale[i] = max_j |x[i][j]| / largest code, code[i][j] = x[i][j] / scale[i], rounded to nearest
// even; a row of zeros (or of no element as large as 2^-100) has the scale 0, one that holds a NaN
// or an infinity the scale NaN. With a norm the numbers are x[i][j] * norm_weight[j], and the scale
// also has the factor 1 / sqrt(mean of squares + eps): norms that nothing has rounded.
//
// Parallel plan: a block a row, which is read once (bf16 rows of up to 16,384 elements; longer ones
// twice). A row's codes depend on that row alone.
//
// Programmatic launch: nothing but norm_weight is read, and nothing written, before the kernel
// ahead has ended.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pelton::kernels::cuda {

enum class RowCodes : uint8_t { kFp8, kInt8 };  // up to 448 and 127

struct QuantizeRowsArgs {
  const void* x = nullptr;             // [rows][columns] bf16, with a norm f32; 16-byte aligned
  int64_t x_stride = 0;                // elements between rows, a multiple of 8
  const float* norm_weight = nullptr;  // [columns], 16-byte aligned; null: no norm
  float norm_eps = 0;
  void* codes = nullptr;   // [rows][columns], end to end, 16-byte aligned
  float* scale = nullptr;  // [rows]
  RowCodes kind = RowCodes::kFp8;
  int32_t rows = 0;
  int32_t columns = 0;  // a multiple of 16; with a norm at most kQuantizeMostNormed
  bool programmatic = true;
};
inline constexpr int32_t kQuantizeMostNormed = 8192;

bool supports(const QuantizeRowsArgs& args);
// cudaErrorNotSupported where supports() is false.
cudaError_t launch_quantize_rows(const QuantizeRowsArgs& args, cudaStream_t stream);

}  // namespace pelton::kernels::cuda
