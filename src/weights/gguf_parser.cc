#include "weights/gguf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "base/checked.h"
#include "base/utf8.h"
#include "weights/byte_reader.h"
#include "weights/quote.h"

namespace pelton::weights {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxHeaderBytes = uint64_t{512} << 20;
constexpr uint64_t kMaxKeys = 65536;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensors = uint64_t{1} << 20;
constexpr uint64_t kMaxArrayElements = uint64_t{4} << 20;  // vocabulary, merges
constexpr uint32_t kMaxDims = 4;
constexpr size_t kMaxTensorNameBytes = 256;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMinAlignment = 8;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
constexpr std::string_view kAlignmentKey = "general.alignment";

// The smallest encodings: they bound a count before anything is taken for it.
constexpr uint64_t kMinKeyValueBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;

enum class ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

struct GgmlType {
  uint32_t number;
  std::string_view name;
  WeightFormat format;  // kCount: known, not usable
};

using enum WeightFormat;
constexpr std::array kGgmlTypes = {
    GgmlType{0, "F32", kF32},        GgmlType{1, "F16", kF16},
    GgmlType{2, "Q4_0", kQ4_0},      GgmlType{3, "Q4_1", kQ4_1},
    GgmlType{6, "Q5_0", kQ5_0},      GgmlType{7, "Q5_1", kQ5_1},
    GgmlType{8, "Q8_0", kQ8_0},      GgmlType{9, "Q8_1", kCount},
    GgmlType{10, "Q2_K", kQ2_K},     GgmlType{11, "Q3_K", kQ3_K},
    GgmlType{12, "Q4_K", kQ4_K},     GgmlType{13, "Q5_K", kQ5_K},
    GgmlType{14, "Q6_K", kQ6_K},     GgmlType{15, "Q8_K", kCount},
    GgmlType{16, "IQ2_XXS", kCount}, GgmlType{17, "IQ2_XS", kCount},
    GgmlType{18, "IQ3_XXS", kCount}, GgmlType{19, "IQ1_S", kCount},
    GgmlType{20, "IQ4_NL", kIQ4_NL}, GgmlType{21, "IQ3_S", kCount},
    GgmlType{22, "IQ2_S", kCount},   GgmlType{23, "IQ4_XS", kIQ4_XS},
    GgmlType{24, "I8", kCount},      GgmlType{25, "I16", kCount},
    GgmlType{26, "I32", kCount},     GgmlType{27, "I64", kCount},
    GgmlType{28, "F64", kCount},     GgmlType{29, "IQ1_M", kCount},
    GgmlType{30, "BF16", kBF16},     GgmlType{34, "TQ1_0", kCount},
    GgmlType{35, "TQ2_0", kCount},   GgmlType{39, "MXFP4", kMXFP4},
};

const GgmlType* find_ggml_type(uint32_t number) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

// Bytes of a fixed-size value; 0 for strings, arrays and unknown types.
uint64_t fixed_size(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
    case ValueType::kString:
    case ValueType::kArray:
      return 0;
  }
  return 0;
}

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::string_view path)
      : bytes_(bytes),
        path_(path),
        reader_(
            bytes.first(static_cast<size_t>(std::min<uint64_t>(bytes.size(), kMaxHeaderBytes)))) {}

  Result<GgufContents> parse() {
    if (Status s = read_preamble(); !s.ok()) return s;
    for (uint64_t i = 0; i < num_keys_; ++i) {
      if (Status s = read_key_value(i); !s.ok()) return s;
    }
    if (Status s = read_alignment(); !s.ok()) return s;
    out_.tensors.resize(static_cast<size_t>(num_tensors_));
    offsets_.resize(out_.tensors.size());
    for (uint64_t i = 0; i < num_tensors_; ++i) {
      if (Status s = read_tensor(static_cast<size_t>(i)); !s.ok()) return s;
    }
    if (Status s = place_tensors(); !s.ok()) return s;
    return std::move(out_);
  }

 private:
  Status broken(std::string_view reason) const {
    return file_error(StatusCode::kDataLoss, path_, reason);
  }
  Status broken_key(std::string_view key, std::string_view reason) const {
    return file_error(StatusCode::kDataLoss, path_, fmt::format("key {}: {}", quote(key), reason));
  }
  Status broken_tensor(std::string_view name, std::string_view reason) const {
    return tensor_error(StatusCode::kDataLoss, path_, name, reason);
  }
  // The header's bytes ran out inside `what`.
  Status cut(std::string_view what) const {
    if (bytes_.size() > kMaxHeaderBytes) {
      return broken(
          fmt::format("{}: the header passes the limit of {} bytes", what, kMaxHeaderBytes));
    }
    return broken(fmt::format("{}: longer than the {} bytes left at byte {} of the file", what,
                              reader_.remaining(), reader_.position()));
  }

  Status read_preamble();
  Status read_key_value(uint64_t index);
  Result<GgufValue> read_scalar(std::string_view key, ValueType type);
  Result<GgufValue> read_array(std::string_view key);
  Result<GgufValue> read_strings(std::string_view key, size_t count);
  Result<GgufValue> read_booleans(std::string_view key, size_t count);
  template <typename Wide, typename Stored>
  Result<GgufValue> read_numbers(std::string_view key, size_t count);
  Status read_alignment();
  Status read_tensor(size_t index);
  Status read_shape(TensorInfo* tensor);
  Status size_tensor(TensorInfo* tensor, uint64_t offset);
  Status place_tensors();

  std::span<const std::byte> bytes_;
  std::string_view path_;
  ByteReader reader_;
  uint64_t num_tensors_ = 0;
  uint64_t num_keys_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  bool alignment_is_u32_ = true;
  std::vector<uint64_t> offsets_;  // of each tensor, from the start of the data
  GgufContents out_;
};

Status Parser::read_preamble() {
  uint32_t magic = 0;
  if (!reader_.read(&magic) || magic != kMagic) return broken("not a GGUF file: wrong magic");
  if (!reader_.read(&out_.version)) return cut("version");
  const uint32_t swapped = __builtin_bswap32(out_.version);
  if (out_.version > 0xFFFF && swapped >= 1 && swapped <= 3) {
    return file_error(StatusCode::kUnsupported, path_,
                      "big-endian GGUF; only little-endian files are read");
  }
  if (out_.version < 2 || out_.version > 3) {
    return file_error(StatusCode::kUnsupported, path_,
                      fmt::format("GGUF version {}; versions 2 and 3 are read", out_.version));
  }
  if (!reader_.read(&num_tensors_)) return cut("tensor count");
  if (!reader_.read(&num_keys_)) return cut("metadata count");
  if (num_tensors_ > kMaxTensors || num_tensors_ > reader_.remaining() / kMinTensorBytes) {
    return broken(fmt::format("tensor count {} is more than {} or than the file can hold",
                              num_tensors_, kMaxTensors));
  }
  if (num_keys_ > kMaxKeys || num_keys_ > reader_.remaining() / kMinKeyValueBytes) {
    return broken(fmt::format("metadata count {} is more than {} or than the file can hold",
                              num_keys_, kMaxKeys));
  }
  return {};
}

Status Parser::read_key_value(uint64_t index) {
  std::string_view key;
  if (!reader_.read_string(&key)) return cut(fmt::format("name of key {}", index));
  if (key.empty()) return broken(fmt::format("key {} has an empty name", index));
  if (key.size() > kMaxKeyBytes) return broken_key(key, "name is longer than 65535 bytes");
  if (!is_valid_utf8(key)) return broken_key(key, "name is not valid UTF-8");
  uint32_t type = 0;
  if (!reader_.read(&type)) return cut(fmt::format("type of key {}", quote(key)));
  auto value = static_cast<ValueType>(type) == ValueType::kArray
                   ? read_array(key)
                   : read_scalar(key, static_cast<ValueType>(type));
  if (!value.ok()) return value.status();
  if (key == kAlignmentKey) alignment_is_u32_ = static_cast<ValueType>(type) == ValueType::kU32;
  const auto [place, inserted] = out_.metadata.try_emplace(std::string(key), *std::move(value));
  if (!inserted) return broken_key(key, "appears twice");
  return {};
}

template <typename Wide, typename Stored>
bool read_as(ByteReader* reader, GgufValue* value) {
  Stored stored;
  if (!reader->read(&stored)) return false;
  *value = static_cast<Wide>(stored);
  return true;
}

Result<GgufValue> Parser::read_scalar(std::string_view key, ValueType type) {
  GgufValue value;
  bool complete = false;
  switch (type) {
    case ValueType::kU8:
      complete = read_as<uint64_t, uint8_t>(&reader_, &value);
      break;
    case ValueType::kI8:
      complete = read_as<int64_t, int8_t>(&reader_, &value);
      break;
    case ValueType::kU16:
      complete = read_as<uint64_t, uint16_t>(&reader_, &value);
      break;
    case ValueType::kI16:
      complete = read_as<int64_t, int16_t>(&reader_, &value);
      break;
    case ValueType::kU32:
      complete = read_as<uint64_t, uint32_t>(&reader_, &value);
      break;
    case ValueType::kI32:
      complete = read_as<int64_t, int32_t>(&reader_, &value);
      break;
    case ValueType::kU64:
      complete = read_as<uint64_t, uint64_t>(&reader_, &value);
      break;
    case ValueType::kI64:
      complete = read_as<int64_t, int64_t>(&reader_, &value);
      break;
    case ValueType::kF32:
      complete = read_as<double, float>(&reader_, &value);
      break;
    case ValueType::kF64:
      complete = read_as<double, double>(&reader_, &value);
      break;
    case ValueType::kBool: {
      uint8_t byte = 0;
      complete = reader_.read(&byte);
      if (byte > 1) return broken_key(key, fmt::format("boolean stored as {}", byte));
      value = byte == 1;
      break;
    }
    case ValueType::kString: {
      std::string_view text;
      complete = reader_.read_string(&text);
      if (complete) value = std::string(text);
      break;
    }
    default:
      return broken_key(key, fmt::format("unknown value type {}", static_cast<uint32_t>(type)));
  }
  if (!complete) return cut(fmt::format("value of key {}", quote(key)));
  return value;
}

template <typename Wide, typename Stored>
Result<GgufValue> Parser::read_numbers(std::string_view key, size_t count) {
  std::vector<Wide> values(count);
  for (Wide& value : values) {
    Stored stored;
    if (!reader_.read(&stored)) return cut(fmt::format("values of key {}", quote(key)));
    if constexpr (std::is_integral_v<Stored>) {
      if (!std::in_range<Wide>(stored))
        return broken_key(key, fmt::format("element {} does not fit 63 bits", stored));
    }
    value = static_cast<Wide>(stored);
  }
  return GgufValue(std::move(values));
}

Result<GgufValue> Parser::read_booleans(std::string_view key, size_t count) {
  auto values = read_numbers<int64_t, uint8_t>(key, count);
  if (!values.ok()) return values;
  for (int64_t value : std::get<std::vector<int64_t>>(*values)) {
    if (value > 1) return broken_key(key, fmt::format("boolean stored as {}", value));
  }
  return values;
}

Result<GgufValue> Parser::read_strings(std::string_view key, size_t count) {
  std::vector<std::string> values;
  values.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    std::string_view text;
    if (!reader_.read_string(&text)) return cut(fmt::format("string {} of key {}", i, quote(key)));
    values.emplace_back(text);
  }
  return GgufValue(std::move(values));
}

Result<GgufValue> Parser::read_array(std::string_view key) {
  uint32_t number = 0;
  uint64_t count = 0;
  if (!reader_.read(&number) || !reader_.read(&count))
    return cut(fmt::format("array header of key {}", quote(key)));
  const auto type = static_cast<ValueType>(number);
  if (type == ValueType::kArray)
    return file_error(StatusCode::kUnsupported, path_,
                      fmt::format("key {}: arrays of arrays are not read", quote(key)));
  const uint64_t element_bytes = type == ValueType::kString ? 8 : fixed_size(type);
  if (element_bytes == 0)
    return broken_key(key, fmt::format("unknown array element type {}", number));
  if (count > kMaxArrayElements) {
    return broken_key(
        key, fmt::format("{} elements, more than the limit of {}", count, kMaxArrayElements));
  }
  if (count > reader_.remaining() / element_bytes)
    return cut(fmt::format("array of {} elements of key {}", count, quote(key)));
  const auto n = static_cast<size_t>(count);
  switch (type) {
    case ValueType::kU8:
      return read_numbers<int64_t, uint8_t>(key, n);
    case ValueType::kBool:
      return read_booleans(key, n);
    case ValueType::kI8:
      return read_numbers<int64_t, int8_t>(key, n);
    case ValueType::kU16:
      return read_numbers<int64_t, uint16_t>(key, n);
    case ValueType::kI16:
      return read_numbers<int64_t, int16_t>(key, n);
    case ValueType::kU32:
      return read_numbers<int64_t, uint32_t>(key, n);
    case ValueType::kI32:
      return read_numbers<int64_t, int32_t>(key, n);
    case ValueType::kU64:
      return read_numbers<int64_t, uint64_t>(key, n);
    case ValueType::kI64:
      return read_numbers<int64_t, int64_t>(key, n);
    case ValueType::kF32:
      return read_numbers<double, float>(key, n);
    case ValueType::kF64:
      return read_numbers<double, double>(key, n);
    default:
      return read_strings(key, n);
  }
}

Status Parser::read_alignment() {
  const auto found = out_.metadata.find(kAlignmentKey);
  if (found == out_.metadata.end()) return {};
  const auto* value = std::get_if<uint64_t>(&found->second);
  if (value == nullptr || !alignment_is_u32_)
    return broken_key(kAlignmentKey, "must be a 32-bit unsigned integer");
  if (!std::has_single_bit(*value) || *value < kMinAlignment || *value > kMaxAlignment) {
    return broken_key(kAlignmentKey, fmt::format("{} is not a power of two from {} to {}", *value,
                                                 kMinAlignment, kMaxAlignment));
  }
  alignment_ = *value;
  return {};
}

Status Parser::read_tensor(size_t index) {
  TensorInfo& tensor = out_.tensors[index];
  std::string_view name;
  if (!reader_.read_string(&name)) return cut(fmt::format("name of tensor {}", index));
  if (name.empty()) return broken(fmt::format("tensor {} has an empty name", index));
  if (name.size() > kMaxTensorNameBytes) {
    return broken_tensor(
        name, fmt::format("name of {} bytes is longer than {}", name.size(), kMaxTensorNameBytes));
  }
  if (!is_valid_utf8(name)) return broken_tensor(name, "name is not valid UTF-8");
  tensor.name = name;
  if (Status s = read_shape(&tensor); !s.ok()) return s;
  uint32_t type = 0;
  if (!reader_.read(&type) || !reader_.read(&offsets_[index]))
    return cut(fmt::format("description of tensor {}", quote(name)));
  const auto format = format_of_ggml_type(type);
  if (!format) {
    const std::string_view type_name = ggml_type_name(type);
    if (type_name.empty()) return broken_tensor(name, fmt::format("unknown tensor type {}", type));
    return tensor_error(StatusCode::kUnsupported, path_, name,
                        fmt::format("tensor type {} ({}) is not supported", type_name, type));
  }
  tensor.format = *format;
  return {};
}

// GGUF lists the innermost dimension first.
Status Parser::read_shape(TensorInfo* tensor) {
  uint32_t dims = 0;
  if (!reader_.read(&dims)) return cut(fmt::format("shape of tensor {}", quote(tensor->name)));
  if (dims > kMaxDims) {
    return broken_tensor(tensor->name, fmt::format("{} dimensions, more than {}", dims, kMaxDims));
  }
  tensor->shape.resize(dims);
  for (uint32_t i = dims; i-- > 0;) {
    int64_t& size = tensor->shape[i];
    if (!reader_.read(&size)) return cut(fmt::format("shape of tensor {}", quote(tensor->name)));
    if (size <= 0) return broken_tensor(tensor->name, fmt::format("dimension of size {}", size));
  }
  const auto elements = checked_product(tensor->shape);
  if (!elements || !checked_cast<int64_t>(*elements))
    return broken_tensor(tensor->name, "number of elements overflows");
  return {};
}

// Sets `data` once the range [offset, offset + bytes) of the data section is proved.
Status Parser::size_tensor(TensorInfo* tensor, uint64_t offset) {
  const WeightFormatInfo& info = weight_format_info(tensor->format);
  const int64_t row = tensor->shape.empty() ? 1 : tensor->shape.back();
  if (row % info.block_elements != 0) {
    return broken_tensor(tensor->name,
                         fmt::format("rows of {} elements are not whole {} blocks of {}", row,
                                     info.name, info.block_elements));
  }
  const auto size = weight_bytes(tensor->format, static_cast<uint64_t>(tensor->elements()));
  if (!size) return broken_tensor(tensor->name, "size in bytes overflows");
  if (offset % alignment_ != 0) {
    return broken_tensor(tensor->name,
                         fmt::format("offset {} is not a multiple of {}", offset, alignment_));
  }
  const auto start = checked_align(reader_.position(), alignment_);
  const auto begin = start ? checked_add(*start, offset) : std::nullopt;
  const auto end = begin ? checked_add(*begin, *size) : std::nullopt;
  if (!end || *end > bytes_.size()) {
    return broken_tensor(tensor->name,
                         fmt::format("{} bytes at data offset {} pass the end of the file ({} "
                                     "bytes)",
                                     *size, offset, bytes_.size()));
  }
  tensor->data = bytes_.subspan(static_cast<size_t>(*begin), static_cast<size_t>(*size));
  return {};
}

// Tensors must follow each other with only alignment between them, and fill the file.
Status Parser::place_tensors() {
  for (size_t i = 0; i < out_.tensors.size(); ++i) {
    if (Status s = size_tensor(&out_.tensors[i], offsets_[i]); !s.ok()) return s;
  }
  std::vector<uint32_t> order(out_.tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
    return offsets_[a] != offsets_[b] ? offsets_[a] < offsets_[b] : a < b;
  });
  uint64_t expected = 0;  // every range ends inside the file, so these sums cannot overflow
  uint64_t end = reader_.position();
  for (uint32_t index : order) {
    const TensorInfo& tensor = out_.tensors[index];
    if (offsets_[index] != expected) {
      return broken_tensor(
          tensor.name,
          fmt::format("offset {} {}; the tensor before it ends at {}", offsets_[index],
                      offsets_[index] < expected ? "overlaps" : "leaves a gap", expected));
    }
    expected = *checked_align(expected + tensor.data.size(), alignment_);
    end = static_cast<uint64_t>(tensor.data.data() + tensor.data.size() - bytes_.data());
  }
  const uint64_t padded = *checked_align(end, alignment_);
  if (bytes_.size() <= padded) return {};
  const bool another =
      bytes_.size() - padded >= 4 && std::memcmp(bytes_.data() + padded, "GGUF", 4) == 0;
  return broken(fmt::format("{} bytes follow the last tensor{}", bytes_.size() - padded,
                            another ? ": several GGUF files were concatenated" : ""));
}

}  // namespace

std::optional<WeightFormat> format_of_ggml_type(uint32_t type) {
  const GgmlType* known = find_ggml_type(type);
  if (known == nullptr || known->format == kCount) return std::nullopt;
  return known->format;
}

std::string_view ggml_type_name(uint32_t type) {
  const GgmlType* known = find_ggml_type(type);
  return known != nullptr ? known->name : std::string_view();
}

Result<GgufContents> parse_gguf(std::span<const std::byte> bytes, std::string_view path) {
  return Parser(bytes, path).parse();
}

}  // namespace pelton::weights
