#include "core/tensor.h"

#include <fmt/format.h>

namespace pelton {

std::string Tensor::to_string() const {
  std::string dims;
  for (int i = 0; i < rank; ++i)
    dims += fmt::format("{}{}", i == 0 ? "" : ", ", shape[static_cast<size_t>(i)]);
  return fmt::format("{} [{}]", dtype_name(dtype), dims);
}

}  // namespace pelton
