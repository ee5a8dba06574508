// A view of numbers: pointer, type, shape. Owns nothing; whoever made it says how long it lives
// (step tensors: until the step's arena is reset; weights and pages: as long as the model and the
// cache). Rows are contiguous; the distance between rows may be larger than a row, so that a column
// range of a fused output is a view too.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/check.h"
#include "core/dtype.h"

namespace pelton {

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, 3>
      shape{};             // outermost first; [tokens, heads, head_dim] or [tokens, features]
  int64_t row_stride = 0;  // elements between consecutive indices of the outermost dimension

  static Tensor rows(void* data, DType dtype, int64_t rows, int64_t columns) {
    return {data, dtype, 2, {rows, columns, 1}, columns};
  }

  int64_t num_rows() const { return shape[0]; }
  // Elements of one row, over all inner dimensions.
  int64_t row_elements() const {
    return rank == 3 ? shape[1] * shape[2] : (rank == 2 ? shape[1] : 1);
  }

  float* f32() const {
    check(dtype == DType::kF32, "tensor is not f32");
    return static_cast<float*>(data);
  }
  float* row_f32(int64_t row) const { return f32() + row * row_stride; }

  // Columns [begin, begin + count) of a matrix, sharing its memory.
  Tensor columns(int64_t begin, int64_t count) const {
    check(rank == 2 && begin >= 0 && count >= 0 && begin + count <= shape[1],
          "column range outside the tensor");
    Tensor t = *this;
    t.data = static_cast<char*>(data) + begin * dtype_bytes(dtype);
    t.shape[1] = count;
    return t;
  }

  // The same rows seen as [tokens, heads, head_dim].
  Tensor heads(int64_t num_heads, int64_t head_dim) const {
    check(rank == 2 && shape[1] == num_heads * head_dim, "row is not num_heads * head_dim");
    Tensor t = *this;
    t.rank = 3;
    t.shape = {shape[0], num_heads, head_dim};
    return t;
  }

  std::string to_string() const;  // "f32 [4, 576]"
};

}  // namespace pelton
