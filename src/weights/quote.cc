#include "weights/quote.h"

#include <fmt/format.h>

#include "base/quote.h"

namespace pelton::weights {

Status file_error(StatusCode code, std::string_view path, std::string_view reason) {
  return {code, fmt::format("{}: {}", path, reason)};
}

Status tensor_error(StatusCode code, std::string_view path, std::string_view name,
                    std::string_view reason) {
  return {code, fmt::format("{}: tensor {}: {}", path, quote(name), reason)};
}

}  // namespace pelton::weights
