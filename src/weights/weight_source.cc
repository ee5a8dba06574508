#include "weights/weight_source.h"

#include <fmt/format.h>

#include "weights/quote.h"

namespace pelton::weights {

int64_t TensorInfo::elements() const {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;  // proved to fit when the file was opened
  return product;
}

Result<const TensorInfo*> WeightSource::require(std::string_view name) const {
  if (const TensorInfo* tensor = find(name)) return tensor;
  const std::string reason = unusable_reason(name);
  if (!reason.empty()) return tensor_error(StatusCode::kUnsupported, path(), name, reason);
  return tensor_error(StatusCode::kNotFound, path(), name, "missing");
}

std::string WeightSource::unusable_reason(std::string_view) const { return {}; }

}  // namespace pelton::weights
