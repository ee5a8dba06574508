// A JSON document from a file nobody vouches for: size and nesting are limited, running out of
// memory is a status, and error messages name the place.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton {

constexpr size_t kMaxJsonBytes = 256u << 20;
constexpr size_t kMaxJsonDepth = 64;

// A value and its path ("pre_tokenizer.pretokenizers[1]"). Valid while its document lives.
class JsonValue {
 public:
  JsonValue(simdjson::dom::element element, std::string path)
      : element_(element), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  const simdjson::dom::element& element() const { return element_; }
  bool is_null() const { return element_.is_null(); }
  bool is_object() const { return element_.is_object(); }
  bool is_array() const { return element_.is_array(); }
  bool is_string() const { return element_.is_string(); }

  // Absent when there is no such key or it is null, or this is not an object.
  std::optional<JsonValue> get(std::string_view key) const;
  // An error naming the path when absent or of another type.
  Result<std::string_view> string(std::string_view key) const;
  Result<int64_t> integer(std::string_view key) const;
  // `fallback` when absent, an error when of another type.
  Result<bool> boolean(std::string_view key, bool fallback) const;
  Result<std::string> string_or(std::string_view key, std::string_view fallback) const;
  // Elements of an array under `key`; an error when it is no array.
  Result<std::vector<JsonValue>> items(std::string_view key) const;

  Status error(std::string_view what) const;
  Status error_at(std::string_view key, std::string_view what) const;

 private:
  std::string child(std::string_view key) const;

  simdjson::dom::element element_;
  std::string path_;
};

// Owns what it parsed; `text` may go.
class JsonDocument {
 public:
  // kDataLoss for anything but one well-formed value, kResourceExhausted without memory for it.
  // Integers beyond 64 bits and numbers beyond a double are not well-formed here.
  static Result<JsonDocument> parse(std::string_view text);
  JsonValue root() const { return {root_, ""}; }
  // Names the first object that has a key twice; readers differ in which of the two they believe.
  Status refuse_duplicate_keys() const;

 private:
  JsonDocument() : parser_(std::make_unique<simdjson::dom::parser>(kMaxJsonBytes)) {}
  std::unique_ptr<simdjson::dom::parser> parser_;
  simdjson::dom::element root_;
};

}  // namespace pelton
