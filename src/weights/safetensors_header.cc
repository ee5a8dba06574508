#include "weights/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/checked.h"
#include "weights/byte_reader.h"
#include "weights/json_events.h"
#include "weights/quote.h"

namespace pelton::weights {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxDims = 8;
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxTensors = size_t{1} << 20;
constexpr std::string_view kMetadata = "__metadata__";

struct Dtype {
  std::string_view name;
  uint64_t bits;
};
constexpr std::array kDtypes = {
    Dtype{"F32", 32},        Dtype{"F16", 16},        Dtype{"BF16", 16},   Dtype{"F64", 64},
    Dtype{"I64", 64},        Dtype{"I32", 32},        Dtype{"I16", 16},    Dtype{"I8", 8},
    Dtype{"U64", 64},        Dtype{"U32", 32},        Dtype{"U16", 16},    Dtype{"U8", 8},
    Dtype{"BOOL", 8},        Dtype{"F8_E4M3", 8},     Dtype{"F8_E5M2", 8}, Dtype{"F8_E8M0", 8},
    Dtype{"F6_E2M3", 6},     Dtype{"F6_E3M2", 6},     Dtype{"F4", 4},      Dtype{"C64", 64},
    Dtype{"F8_E4M3FNUZ", 8}, Dtype{"F8_E5M2FNUZ", 8},
};

std::optional<uint64_t> dtype_bits(std::string_view name) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.name == name) return dtype.bits;
  }
  return std::nullopt;
}

Status bad_entry(std::string_view name, std::string_view reason) {
  return data_loss(fmt::format("tensor {}: {}", quote(name), reason));
}

// Builds entries from the header's events. Its errors lack the path; the parser adds it.
class HeaderListener final : public JsonListener {
 public:
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string, std::less<>> metadata;

  Status begin_object() override {
    if (place_ == Place::kStart) return go(Place::kRoot);
    if (place_ == Place::kTensorValue) return go(Place::kTensor);
    if (place_ == Place::kMetadataValue) return go(Place::kMetadata);
    return unexpected("an object");
  }

  Status key(std::string& name) override {
    switch (place_) {
      case Place::kRoot:
        return root_key(name);
      case Place::kTensor:
        return field_key(name);
      default:  // the only other object: __metadata__
        metadata_key_ = std::move(name);
        return {};
    }
  }

  Status end_object() override {
    if (place_ == Place::kRoot) return go(Place::kEnd);
    if (place_ == Place::kTensor && fields_ != kAllFields)
      return bad_entry(entries.back().name, "needs dtype, shape and data_offsets");
    return go(Place::kRoot);
  }

  Status begin_array() override {
    if (place_ == Place::kShapeValue) return go(Place::kShape);
    if (place_ == Place::kOffsetsValue) return go(Place::kOffsets);
    return unexpected("an array");
  }

  Status end_array() override {
    if (place_ == Place::kOffsets && num_offsets_ != 2)
      return bad_entry(entries.back().name, "data_offsets must be two integers");
    return go(Place::kTensor);
  }

  Status string(std::string& value) override {
    if (place_ == Place::kDtypeValue) {
      entries.back().dtype = std::move(value);
      return go(Place::kTensor);
    }
    if (place_ == Place::kMetadata) {
      if (metadata.emplace(std::move(metadata_key_), std::move(value)).second) return {};
      return data_loss("__metadata__ holds a key twice");
    }
    return unexpected("a string");
  }

  Status unsigned_integer(uint64_t value) override {
    if (place_ == Place::kShape) return add_dim(value);
    if (place_ == Place::kOffsets) {
      if (num_offsets_ == 2)
        return bad_entry(entries.back().name, "data_offsets must be two integers");
      (num_offsets_++ == 0 ? entries.back().begin : entries.back().end) = value;
      return {};
    }
    return unexpected("an integer");
  }

  Status other(std::string_view kind) override { return unexpected(kind); }

 private:
  enum class Place {
    kStart,
    kRoot,
    kMetadataValue,
    kMetadata,
    kTensorValue,
    kTensor,
    kDtypeValue,
    kShapeValue,
    kShape,
    kOffsetsValue,
    kOffsets,
    kEnd,
  };
  static constexpr unsigned kDtypeField = 1, kShapeField = 2, kOffsetsField = 4, kAllFields = 7;

  Status go(Place place) {
    place_ = place;
    return {};
  }

  Status unexpected(std::string_view kind) const {
    switch (place_) {
      case Place::kStart:
        return data_loss(fmt::format("{} where an object is expected", kind));
      case Place::kMetadataValue:
      case Place::kMetadata:
        return data_loss(fmt::format("__metadata__ must map strings to strings, not to {}", kind));
      case Place::kTensorValue:
        return bad_entry(entries.back().name, fmt::format("{} where an object is expected", kind));
      case Place::kDtypeValue:
        return bad_entry(entries.back().name, fmt::format("dtype is {}, not a string", kind));
      case Place::kShapeValue:
      case Place::kShape:
        return bad_entry(entries.back().name,
                         fmt::format("{} where shape lists non-negative integers", kind));
      default:
        return bad_entry(entries.back().name,
                         fmt::format("{} where data_offsets are two integers", kind));
    }
  }

  Status root_key(std::string& name) {
    if (name == kMetadata) {
      if (seen_metadata_) return data_loss("__metadata__ appears twice");
      seen_metadata_ = true;
      return go(Place::kMetadataValue);
    }
    if (name.empty()) return data_loss("a tensor has an empty name");
    if (name.size() > kMaxNameBytes) {
      return bad_entry(
          name, fmt::format("name of {} bytes is longer than {}", name.size(), kMaxNameBytes));
    }
    if (entries.size() == kMaxTensors)
      return data_loss(fmt::format("more than {} tensors", kMaxTensors));
    entries.emplace_back().name = std::move(name);
    fields_ = 0;
    num_offsets_ = 0;
    return go(Place::kTensorValue);
  }

  Status field_key(const std::string& name) {
    unsigned field = 0;
    if (name == "dtype") {
      field = kDtypeField;
      place_ = Place::kDtypeValue;
    } else if (name == "shape") {
      field = kShapeField;
      place_ = Place::kShapeValue;
    } else if (name == "data_offsets") {
      field = kOffsetsField;
      place_ = Place::kOffsetsValue;
    } else {
      return bad_entry(entries.back().name, fmt::format("unknown field {}", quote(name)));
    }
    if ((fields_ & field) != 0)
      return bad_entry(entries.back().name, fmt::format("field {} appears twice", quote(name)));
    fields_ |= field;
    return {};
  }

  Status add_dim(uint64_t value) {
    SafetensorsEntry& entry = entries.back();
    if (entry.shape.size() == kMaxDims)
      return bad_entry(entry.name, fmt::format("more than {} dimensions", kMaxDims));
    const auto size = checked_cast<int64_t>(value);
    if (!size || *size == 0)
      return bad_entry(entry.name, fmt::format("dimension of size {}", value));
    entry.shape.push_back(*size);
    return {};
  }

  Place place_ = Place::kStart;
  unsigned fields_ = 0;
  int num_offsets_ = 0;
  bool seen_metadata_ = false;
  std::string metadata_key_;
};

Status check_size(const SafetensorsEntry& entry, uint64_t data_bytes) {
  const auto bits = dtype_bits(entry.dtype);
  if (!bits) {
    return unsupported(
        fmt::format("tensor {}: unknown dtype {}", quote(entry.name), quote(entry.dtype)));
  }
  const auto elements = checked_product(entry.shape);
  if (!elements || !checked_cast<int64_t>(*elements))
    return bad_entry(entry.name, "number of elements overflows");
  const auto total_bits = checked_mul(*elements, *bits);
  if (!total_bits) return bad_entry(entry.name, "size in bytes overflows");
  if (*total_bits % 8 != 0) return bad_entry(entry.name, "does not fill whole bytes");
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return bad_entry(entry.name, fmt::format("data_offsets [{}, {}] pass the {} bytes of data",
                                             entry.begin, entry.end, data_bytes));
  }
  if (entry.end - entry.begin != *total_bits / 8) {
    return bad_entry(entry.name, fmt::format("data_offsets span {} bytes; shape and dtype need {}",
                                             entry.end - entry.begin, *total_bits / 8));
  }
  return {};
}

Status check_names(const std::vector<SafetensorsEntry>& entries) {
  std::vector<std::string_view> names(entries.size());
  std::transform(entries.begin(), entries.end(), names.begin(),
                 [](const SafetensorsEntry& entry) { return std::string_view(entry.name); });
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  return twin == names.end() ? Status() : bad_entry(*twin, "appears twice");
}

// Sorts by place and proves that the ranges cover the data exactly.
Status check_layout(std::vector<SafetensorsEntry>* entries, uint64_t data_bytes) {
  for (const SafetensorsEntry& entry : *entries) {
    if (Status s = check_size(entry, data_bytes); !s.ok()) return s;
  }
  std::sort(entries->begin(), entries->end(), [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.name < b.name;
  });
  uint64_t expected = 0;
  for (const SafetensorsEntry& entry : *entries) {
    if (entry.begin != expected) {
      return bad_entry(
          entry.name,
          fmt::format("data begins at {}, which {}; the tensor before it ends at {}", entry.begin,
                      entry.begin < expected ? "overlaps" : "leaves a gap", expected));
    }
    expected = entry.end;
  }
  if (expected != data_bytes)
    return data_loss(fmt::format("{} bytes follow the last tensor", data_bytes - expected));
  return {};
}

class IndexListener final : public JsonListener {
 public:
  ShardMap shards;
  bool seen_map = false;

  Status begin_object() override {
    ++depth_;
    if (depth_ == 2 && at_map_) in_map_ = true;
    if (depth_ > 2 && in_map_) return not_strings();
    return {};
  }
  Status key(std::string& name) override {
    if (in_map_) {
      tensor_ = std::move(name);
    } else if (depth_ == 1) {
      at_map_ = name == "weight_map";
      if (at_map_ && seen_map) return data_loss("weight_map appears twice");
      seen_map = seen_map || at_map_;
    }
    return {};
  }
  Status end_object() override {
    --depth_;
    in_map_ = false;
    return {};
  }
  Status begin_array() override { return value_is("an array"); }
  Status end_array() override { return {}; }
  Status string(std::string& value) override {
    if (!in_map_) return value_is("a string");
    if (!is_plain_file_name(value)) {
      return bad_entry(tensor_,
                       fmt::format("shard name {} is not a plain file name", quote(value)));
    }
    const auto [place, inserted] = shards.emplace(std::move(tensor_), std::move(value));
    return inserted ? Status() : bad_entry(place->first, "appears twice");
  }
  Status unsigned_integer(uint64_t) override { return value_is("an integer"); }
  Status other(std::string_view kind) override { return value_is(kind); }

 private:
  static bool is_plain_file_name(std::string_view name) {
    return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
           name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
  }
  static Status not_strings() { return data_loss("weight_map must map strings to strings"); }
  Status value_is(std::string_view kind) const {
    if (depth_ == 0) return data_loss(fmt::format("{} where an object is expected", kind));
    return in_map_ || (depth_ == 1 && at_map_) ? not_strings() : Status();
  }

  int depth_ = 0;
  bool at_map_ = false;  // the last key of the outer object was weight_map
  bool in_map_ = false;
  std::string tensor_;
};

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> bytes,
                                                   std::string_view path) {
  ByteReader reader(bytes);
  uint64_t length = 0;
  if (!reader.read(&length)) {
    return file_error(StatusCode::kDataLoss, path,
                      "not a safetensors file: shorter than its length field");
  }
  if (length > kMaxHeaderBytes) {
    return file_error(
        StatusCode::kDataLoss, path,
        fmt::format("header of {} bytes, more than the limit of {}", length, kMaxHeaderBytes));
  }
  std::string_view text;
  if (!reader.read_bytes(length, &text)) {
    return file_error(
        StatusCode::kDataLoss, path,
        fmt::format("header of {} bytes, but {} are left in the file", length, reader.remaining()));
  }
  if (!text.starts_with('{'))
    return file_error(StatusCode::kDataLoss, path, "not a safetensors file: no JSON header");
  HeaderListener listener;
  if (Status s = parse_json_events(text, "header", &listener); !s.ok()) return s.with_context(path);
  SafetensorsHeader header;
  header.entries = std::move(listener.entries);
  header.metadata = std::move(listener.metadata);
  header.data_start = reader.position();
  if (Status s = check_names(header.entries); !s.ok()) return s.with_context(path);
  if (Status s = check_layout(&header.entries, reader.remaining()); !s.ok())
    return s.with_context(path);
  return header;
}

std::optional<WeightFormat> format_of_safetensors_dtype(std::string_view dtype) {
  if (dtype == "F32") return WeightFormat::kF32;
  if (dtype == "F16") return WeightFormat::kF16;
  if (dtype == "BF16") return WeightFormat::kBF16;
  return std::nullopt;
}

Result<ShardMap> parse_safetensors_index(std::string_view text, std::string_view path) {
  IndexListener listener;
  if (Status s = parse_json_events(text, path, &listener); !s.ok()) return s;
  if (listener.shards.empty()) {
    return file_error(StatusCode::kDataLoss, path,
                      listener.seen_map ? "weight_map is empty" : "has no weight_map");
  }
  return std::move(listener.shards);
}

}  // namespace pelton::weights
