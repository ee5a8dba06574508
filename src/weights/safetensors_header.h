// The header of one safetensors file, proved against the file's size.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/dtype.h"

namespace pelton::weights {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;           // as the file spells it
  std::vector<int64_t> shape;  // outermost first
  uint64_t begin = 0;          // bytes from the start of the data
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in order of their data
  std::map<std::string, std::string, std::less<>> metadata;
  uint64_t data_start = 0;  // bytes from the start of the file
};

// The whole file's bytes. On success the entries' ranges follow each other without gap or overlap
// from data_start to the end of the file, and each is as long as shape and dtype say.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> bytes,
                                                   std::string_view path);

// The dtypes that Pelton computes with; absent for those it only steps over.
std::optional<WeightFormat> format_of_safetensors_dtype(std::string_view dtype);

// The weight_map of model.safetensors.index.json: tensor name to shard file name. Shard names are
// plain file names.
using ShardMap = std::map<std::string, std::string, std::less<>>;
Result<ShardMap> parse_safetensors_index(std::string_view text, std::string_view path);

}  // namespace pelton::weights
