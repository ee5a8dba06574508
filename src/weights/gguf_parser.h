// One GGUF file's bytes turned into metadata and proved tensor ranges.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/gguf.h"

namespace pelton::weights {

struct GgufContents {
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<TensorInfo> tensors;  // in file order; `file` is not set
};

Result<GgufContents> parse_gguf(std::span<const std::byte> bytes, std::string_view path);

// GGUF's number of a tensor type; absent for types that Pelton has no kernels for.
std::optional<WeightFormat> format_of_ggml_type(uint32_t type);
// Name of any type number that GGUF defines, "" for others.
std::string_view ggml_type_name(uint32_t type);

}  // namespace pelton::weights
