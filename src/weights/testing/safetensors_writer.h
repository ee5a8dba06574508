// Small safetensors files for tests, right by default, breakable one rule at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::weights::testing {

struct SafetensorsTensorSpec {
  std::string name;
  std::string dtype = "F32";
  std::vector<int64_t> shape;
  std::string data;
};

struct SafetensorsSpec {
  std::vector<SafetensorsTensorSpec> tensors;
  std::string metadata = {};  // JSON text of __metadata__, left out when empty
  size_t align = 8;           // the header is padded with spaces to a multiple of this
  std::string trailing = {};
};

std::string write_safetensors(const SafetensorsSpec& spec);
// A file around a given header text.
std::string wrap_safetensors(std::string_view header, std::string_view data);
// The header text of write_safetensors(spec).
std::string safetensors_header_text(const SafetensorsSpec& spec);

// Tensors of all three usable dtypes, one of another, a scalar and metadata.
SafetensorsSpec small_safetensors();

}  // namespace pelton::weights::testing
