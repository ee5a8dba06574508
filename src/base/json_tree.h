// A JSON value to build, change and write: conversations for templates, answers of commands. Keys
// keep the order they came in. Running out of memory is std::bad_alloc wherever a value is made and
// nowhere else: taking one apart needs none. Names follow nlohmann::json, which many know.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace pelton {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() = default;
  // Not the variant's own copy: the standard library's, when memory ends inside of it, takes apart
  // what was never made.
  Json(const Json& other);
  Json(Json&&) noexcept = default;
  Json& operator=(const Json& other) { return *this = Json(other); }
  Json& operator=(Json&&) noexcept = default;
  ~Json() = default;

  Json(std::nullptr_t) {}
  Json(std::same_as<bool> auto flag) : value_(flag) {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Json(T number) {
    if constexpr (std::is_signed_v<T>) {
      value_ = static_cast<int64_t>(number);
    } else {
      value_ = static_cast<uint64_t>(number);
    }
  }
  Json(std::floating_point auto number) : value_(static_cast<double>(number)) {}
  Json(std::string text) : value_(std::move(text)) {}
  Json(std::string_view text) : value_(std::string(text)) {}
  Json(const char* text) : value_(std::string(text)) {}
  template <typename T>
    requires(!std::same_as<T, Json>)
  Json(const std::vector<T>& items) : value_(Array(items.begin(), items.end())) {}
  // An object when every element is a pair of a text and a value, else an array.
  Json(std::initializer_list<Json> items);

  static Json array() { return Json(Array()); }
  static Json array(std::initializer_list<Json> items) { return Json(Array(items)); }
  static Json object() { return Json(Object()); }

  // One well-formed value without duplicate keys, nested kMaxJsonDepth deep at most. kDataLoss for
  // anything else, kResourceExhausted without memory for it.
  static Result<Json> parse(std::string_view text);

  bool is_null() const { return holds<std::monostate>(); }
  bool is_boolean() const { return holds<bool>(); }
  bool is_number() const { return is_number_integer() || is_number_float(); }
  bool is_number_integer() const { return holds<int64_t>() || is_number_unsigned(); }
  bool is_number_unsigned() const { return holds<uint64_t>(); }
  bool is_number_float() const { return holds<double>(); }
  bool is_string() const { return holds<std::string>(); }
  bool is_array() const { return holds<Array>(); }
  bool is_object() const { return holds<Object>(); }

  // What the value is; a programmer's error when it is something else.
  bool as_bool() const { return held<bool>(); }
  int64_t as_integer() const;  // also an unsigned one that fits
  uint64_t as_unsigned() const { return held<uint64_t>(); }
  double as_double() const;  // of any number
  const std::string& as_string() const { return held<std::string>(); }
  const Array& elements() const { return held<Array>(); }
  Array& elements() { return const_cast<Array&>(held<Array>()); }
  const Object& items() const { return held<Object>(); }
  Object& items() { return const_cast<Object&>(held<Object>()); }

  // Of an array or object; 0 for null, 1 for anything else.
  size_t size() const;
  bool empty() const { return size() == 0; }

  // The member of this name; null when there is none or this is no object.
  const Json* find(std::string_view key) const;
  Json* find(std::string_view key);
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  // The member of this name, made when there is none; null becomes an object first.
  Json& operator[](std::string_view key);
  const Json& at(std::string_view key) const;
  const Json& operator[](std::string_view key) const { return at(key); }
  Json& operator[](size_t index) { return elements().at(index); }
  const Json& operator[](size_t index) const { return elements().at(index); }
  Json& back() { return elements().back(); }
  const Json& back() const { return elements().back(); }

  // Appends; null becomes an array first.
  void push_back(Json item);
  void pop_back() { elements().pop_back(); }
  // Sets every member of `other` here.
  void update(Json other);

  // On one line, or with `indent` spaces a level. Always valid JSON: malformed UTF-8 becomes
  // U+FFFD, numbers that JSON cannot hold become null.
  std::string dump(int indent = -1) const;

  friend bool operator==(const Json&, const Json&) = default;

 private:
  explicit Json(Array items) : value_(std::move(items)) {}
  explicit Json(Object members) : value_(std::move(members)) {}
  template <typename T>
  bool holds() const {
    return std::holds_alternative<T>(value_);
  }
  template <typename T>
  const T& held() const {
    const T* value = std::get_if<T>(&value_);
    if (value == nullptr) wrong_type();
    return *value;
  }
  [[noreturn]] static void wrong_type();

  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
  friend class JsonWriter;
};

}  // namespace pelton
