#include "weights/testing/gguf_writer.h"

#include <fmt/format.h>

#include "base/check.h"
#include "weights/gguf_parser.h"

namespace pelton::weights::testing {
namespace {

std::string padding(size_t size, uint64_t alignment) {
  const size_t rest = size % alignment;
  return std::string(rest == 0 ? 0 : alignment - rest, '\0');
}

std::string header(const GgufSpec& spec) {
  std::string out = spec.magic;
  out += number_bytes(spec.version);
  out += number_bytes<uint64_t>(spec.num_tensors.value_or(spec.tensors.size()));
  out += number_bytes<uint64_t>(spec.num_keys.value_or(spec.keys.size()));
  for (const auto& [key, value] : spec.keys) out += string_bytes(key) + value;
  uint64_t next = 0;
  for (const GgufTensorSpec& tensor : spec.tensors) {
    out += string_bytes(tensor.name);
    out += number_bytes(tensor.num_dims.value_or(static_cast<uint32_t>(tensor.dims.size())));
    for (uint64_t dim : tensor.dims) out += number_bytes(dim);
    out += number_bytes(tensor.type);
    out += number_bytes(tensor.offset.value_or(next));
    next += tensor.data.size() + padding(tensor.data.size(), spec.alignment).size();
  }
  return out;
}

}  // namespace

std::string string_bytes(std::string_view text) {
  return number_bytes<uint64_t>(text.size()) + std::string(text);
}

std::string encode_u32(uint32_t value) { return encode(GgufType::kU32, value); }

std::string encode_string(std::string_view text) {
  return number_bytes(static_cast<uint32_t>(GgufType::kString)) + string_bytes(text);
}

std::string encode_array(GgufType type, uint64_t count, std::string_view elements) {
  return number_bytes(static_cast<uint32_t>(GgufType::kArray)) +
         number_bytes(static_cast<uint32_t>(type)) + number_bytes(count) + std::string(elements);
}

std::string encode_strings(const std::vector<std::string>& values) {
  std::string elements;
  for (const std::string& value : values) elements += string_bytes(value);
  return encode_array(GgufType::kString, values.size(), elements);
}

std::string encode(const GgufValue& value) {
  struct Encoder {
    std::string operator()(uint64_t v) const { return encode(GgufType::kU64, v); }
    std::string operator()(int64_t v) const { return encode(GgufType::kI64, v); }
    std::string operator()(double v) const { return encode(GgufType::kF64, v); }
    std::string operator()(bool v) const { return encode<uint8_t>(GgufType::kBool, v); }
    std::string operator()(const std::string& v) const { return encode_string(v); }
    std::string operator()(const std::vector<std::string>& v) const { return encode_strings(v); }
    std::string operator()(const std::vector<int64_t>& v) const {
      std::string elements;
      for (int64_t x : v) elements += number_bytes(x);
      return encode_array(GgufType::kI64, v.size(), elements);
    }
    std::string operator()(const std::vector<double>& v) const {
      std::string elements;
      for (double x : v) elements += number_bytes(x);
      return encode_array(GgufType::kF64, v.size(), elements);
    }
  };
  return std::visit(Encoder(), value);
}

size_t gguf_data_start(const GgufSpec& spec) {
  const size_t size = header(spec).size();
  return size + padding(size, spec.alignment).size();
}

std::string write_gguf(const GgufSpec& spec) {
  std::string out = header(spec);
  if (!spec.tensors.empty()) out += padding(out.size(), spec.alignment);
  for (size_t i = 0; i < spec.tensors.size(); ++i) {
    out += spec.tensors[i].data;
    if (spec.pad_last || i + 1 < spec.tensors.size()) out += padding(out.size(), spec.alignment);
  }
  return out + spec.trailing;
}

uint32_t ggml_type_of(WeightFormat format) {
  for (uint32_t type = 0; type < 64; ++type) {
    if (format_of_ggml_type(type) == format) return type;
  }
  check(false, "every format has a GGUF number");
  return 0;
}

GgufSpec small_gguf() {
  GgufSpec spec;
  spec.keys = {
      {"general.architecture", encode_string("llama")},
      {"general.alignment", encode_u32(32)},
      {"test.u8", encode<uint8_t>(GgufType::kU8, 200)},
      {"test.i8", encode<int8_t>(GgufType::kI8, -100)},
      {"test.u16", encode<uint16_t>(GgufType::kU16, 60000)},
      {"test.i16", encode<int16_t>(GgufType::kI16, -30000)},
      {"test.i32", encode<int32_t>(GgufType::kI32, -2000000000)},
      {"test.f32", encode(GgufType::kF32, 0.5f)},
      {"test.bool", encode<uint8_t>(GgufType::kBool, 1)},
      {"test.u64", encode(GgufType::kU64, ~uint64_t{0})},
      {"test.i64", encode(GgufType::kI64, INT64_MIN)},
      {"test.f64", encode(GgufType::kF64, -0.25)},
      {"test.strings", encode_strings({"a", "", std::string("\xFF\0z", 3)})},
      {"test.ints",
       encode_array(GgufType::kI16, 2, number_bytes<int16_t>(-5) + number_bytes<int16_t>(7))},
      {"test.floats", encode_array(GgufType::kF32, 1, number_bytes(1.5f))},
      {"test.bools", encode_array(GgufType::kBool, 2, std::string("\1\0", 2))},
      {"test.empty", encode_array(GgufType::kString, 0, "")},
  };
  for (const WeightFormatInfo& info : weight_formats()) {
    const auto row = static_cast<uint64_t>(std::max(info.block_elements, 8));
    const auto bytes = weight_bytes(info.format, row * 3);
    check(bytes.has_value(), "three whole rows");
    std::string data(*bytes, '\0');
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7 + data.size());
    spec.tensors.push_back(
        {fmt::format("t.{}", info.name), ggml_type_of(info.format), {row, 3}, std::move(data)});
  }
  return spec;
}

GgufSpec spec_of(const GgufFile& file) {
  GgufSpec spec;
  spec.version = file.version();
  for (const auto& [key, value] : file.metadata()) {
    if (key == "general.alignment") {
      spec.alignment = std::get<uint64_t>(value);
      spec.keys.emplace_back(key, encode_u32(static_cast<uint32_t>(spec.alignment)));
    } else {
      spec.keys.emplace_back(key, encode(value));
    }
  }
  for (const TensorInfo& tensor : file.tensors()) {
    GgufTensorSpec& out = spec.tensors.emplace_back();
    out.name = tensor.name;
    out.type = ggml_type_of(tensor.format);
    out.dims.assign(tensor.shape.rbegin(), tensor.shape.rend());
    out.data.assign(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
  }
  return spec;
}

}  // namespace pelton::weights::testing
