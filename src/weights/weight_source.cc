#include "weights/weight_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "weights/quote.h"

namespace pelton::weights {

int64_t TensorInfo::elements() const {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;  // proved to fit when the file was opened
  return product;
}

void WeightSource::copy(const TensorInfo& tensor, size_t begin, std::span<std::byte> out) {
  if (tensor.file == nullptr) {
    std::ranges::copy(tensor.data.subspan(begin, out.size()), out.begin());
  } else {
    const auto offset = static_cast<size_t>(tensor.data.data() - tensor.file->bytes().data());
    tensor.file->copy(offset + begin, out);
  }
}

void WeightSource::read_ahead(const TensorInfo& tensor, size_t begin, size_t bytes) {
  if (tensor.file == nullptr) return;
  const auto offset = static_cast<size_t>(tensor.data.data() - tensor.file->bytes().data());
  tensor.file->read_ahead(offset + begin, bytes);
}

Result<const TensorInfo*> WeightSource::require(std::string_view name) const {
  if (const TensorInfo* tensor = find(name)) return tensor;
  const std::string reason = unusable_reason(name);
  if (!reason.empty()) return tensor_error(StatusCode::kUnsupported, path(), name, reason);
  return tensor_error(StatusCode::kNotFound, path(), name, "missing");
}

std::string WeightSource::unusable_reason(std::string_view) const { return {}; }

}  // namespace pelton::weights
