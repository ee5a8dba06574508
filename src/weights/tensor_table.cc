#include "weights/tensor_table.h"

#include <algorithm>
#include <numeric>

#include "weights/quote.h"

namespace pelton::weights {

Status TensorTable::assign(std::vector<TensorInfo> tensors, std::string_view path) {
  tensors_ = std::move(tensors);
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [this](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
  const auto twin = std::adjacent_find(
      by_name_.begin(), by_name_.end(),
      [this](uint32_t a, uint32_t b) { return tensors_[a].name == tensors_[b].name; });
  if (twin == by_name_.end()) return {};
  const TensorInfo& later = tensors_[std::max(twin[0], twin[1])];
  return tensor_error(StatusCode::kDataLoss, later.file != nullptr ? later.file->path() : path,
                      later.name, "appears twice");
}

const TensorInfo* TensorTable::find(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [this](uint32_t index, std::string_view wanted) {
                                        return std::string_view(tensors_[index].name) < wanted;
                                      });
  if (found == by_name_.end() || tensors_[*found].name != name) return nullptr;
  return &tensors_[*found];
}

}  // namespace pelton::weights
