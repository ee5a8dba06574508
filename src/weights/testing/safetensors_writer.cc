#include "weights/testing/safetensors_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pelton::weights::testing {

std::string safetensors_header_text(const SafetensorsSpec& spec) {
  std::string text = "{";
  if (!spec.metadata.empty()) text += fmt::format("\"__metadata__\":{},", spec.metadata);
  size_t offset = 0;
  for (const SafetensorsTensorSpec& tensor : spec.tensors) {
    text += fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)",
                        tensor.name, tensor.dtype, fmt::join(tensor.shape, ","), offset,
                        offset + tensor.data.size());
    offset += tensor.data.size();
  }
  if (text.back() == ',') text.pop_back();
  text += "}";
  while (text.size() % spec.align != 0) text += ' ';
  return text;
}

std::string wrap_safetensors(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string out(reinterpret_cast<const char*>(&length), sizeof length);
  out += header;
  out += data;
  return out;
}

std::string write_safetensors(const SafetensorsSpec& spec) {
  std::string data;
  for (const SafetensorsTensorSpec& tensor : spec.tensors) data += tensor.data;
  return wrap_safetensors(safetensors_header_text(spec), data + spec.trailing);
}

SafetensorsSpec small_safetensors() {
  const auto pattern = [](size_t size) {
    std::string data(size, '\0');
    for (size_t i = 0; i < size; ++i) data[i] = static_cast<char>(i * 11 + size);
    return data;
  };
  SafetensorsSpec spec;
  spec.metadata = R"({"format":"pt"})";
  spec.tensors = {
      {"a.weight", "F32", {2, 3}, pattern(24)},   {"b.weight", "BF16", {4}, pattern(8)},
      {"c.weight", "F16", {2, 1, 2}, pattern(8)}, {"d.position_ids", "I64", {1, 2}, pattern(16)},
      {"e.scale", "F32", {}, pattern(4)},
  };
  return spec;
}

}  // namespace pelton::weights::testing
