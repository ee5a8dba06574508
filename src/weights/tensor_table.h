// The tensors of a source with lookup by name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weights/weight_source.h"

namespace pelton::weights {

class TensorTable {
 public:
  // Takes the tensors in the order given; refuses two of one name. `path` names the source where a
  // tensor has no file of its own.
  Status assign(std::vector<TensorInfo> tensors, std::string_view path);

  const TensorInfo* find(std::string_view name) const;
  std::span<const TensorInfo> tensors() const { return tensors_; }

 private:
  std::vector<TensorInfo> tensors_;
  std::vector<uint32_t> by_name_;  // indices into tensors_, sorted by name
};

}  // namespace pelton::weights
