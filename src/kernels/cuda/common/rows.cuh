// Activation rows as kernels read and write them: the type is a property of the launch, so a branch
// on it is the same for every thread.
#pragma once

#include "kernels/cuda/common/convert.cuh"
#include "kernels/params/device_kernels.h"

namespace pelton::kernels::cuda {

__device__ inline float load_at(const Rows& rows, int64_t row, int64_t column) {
  const int64_t at = row * rows.stride + column;
  return rows.type == DType::kF32 ? static_cast<const float*>(rows.data)[at]
                                  : to_float(static_cast<const __nv_bfloat16*>(rows.data)[at]);
}

__device__ inline void store_at(const Rows& rows, int64_t row, int64_t column, float value) {
  const int64_t at = row * rows.stride + column;
  if (rows.type == DType::kF32) {
    static_cast<float*>(rows.data)[at] = value;
  } else {
    static_cast<__nv_bfloat16*>(rows.data)[at] = from_float<__nv_bfloat16>(value);
  }
}

template <typename T>
__device__ inline T* row_of(const Rows& rows, int64_t row) {
  return static_cast<T*>(rows.data) + row * rows.stride;
}

// Calls run(zero of the rows' type).
template <typename Run>
auto with_type(DType type, const Run& run) {
  return type == DType::kBF16 ? run(__nv_bfloat16()) : run(0.0f);
}

// Whether rows can be read four elements at a time from column 0 on.
inline bool is_four_wide(const Rows& rows) {
  const uintptr_t bytes = rows.type == DType::kF32 ? 16 : 8;
  return rows.stride % 4 == 0 && reinterpret_cast<uintptr_t>(rows.data) % bytes == 0;
}

}  // namespace pelton::kernels::cuda
