// Small GGUF files for tests. By default the file is right; every field of the format can be
// overridden so that a test breaks one rule at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weights/gguf.h"

namespace pelton::weights::testing {

// GGUF's numbers of the value types.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// The little-endian bytes of a number, and of a length-prefixed string.
template <typename T>
std::string number_bytes(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string string_bytes(std::string_view text);

// An encoded value: type number and payload.
template <typename T>
std::string encode(GgufType type, T value) {
  return number_bytes(static_cast<uint32_t>(type)) + number_bytes(value);
}
std::string encode_u32(uint32_t value);
std::string encode_string(std::string_view text);
std::string encode_strings(const std::vector<std::string>& values);
// Payload of an array of numbers is the caller's: `elements` encoded one after another.
std::string encode_array(GgufType type, uint64_t count, std::string_view elements);
std::string encode(const GgufValue& value);

struct GgufTensorSpec {
  std::string name;
  uint32_t type = 0;           // F32
  std::vector<uint64_t> dims;  // innermost first, as the file has them
  std::string data;
  std::optional<uint64_t> offset = {};    // default: after the tensor before
  std::optional<uint32_t> num_dims = {};  // default: dims.size()
};

struct GgufSpec {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> num_tensors = {};
  std::optional<uint64_t> num_keys = {};
  std::vector<std::pair<std::string, std::string>> keys;  // name, encoded value
  std::vector<GgufTensorSpec> tensors;
  uint64_t alignment = 32;  // of the data; add the key yourself where it is not 32
  bool pad_last = true;
  std::string trailing;
};

std::string write_gguf(const GgufSpec& spec);
// Bytes before the data section of write_gguf(spec), alignment included.
size_t gguf_data_start(const GgufSpec& spec);

// A file with every value type, an array of each kind, and tensors in every supported type.
GgufSpec small_gguf();
// The specification of a file equal to `file`: the same metadata, tensors and data.
GgufSpec spec_of(const GgufFile& file);
// GGUF's number of a format.
uint32_t ggml_type_of(WeightFormat format);

}  // namespace pelton::weights::testing
