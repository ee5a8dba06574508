#include "base/json_tree.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"

namespace pelton {
namespace {

// Documents are nested at most kMaxJsonDepth deep.
Json from_element(const simdjson::dom::element& element) {
  switch (element.type()) {
    case simdjson::dom::element_type::ARRAY: {
      Json list = Json::array();
      const simdjson::dom::array items = element.get_array().value_unsafe();
      list.elements().reserve(items.size());
      for (const simdjson::dom::element item : items) list.push_back(from_element(item));
      return list;
    }
    case simdjson::dom::element_type::OBJECT: {
      Json object = Json::object();
      const simdjson::dom::object fields = element.get_object().value_unsafe();
      object.items().reserve(fields.size());
      for (const simdjson::dom::key_value_pair field : fields)
        object.items().emplace_back(std::string(field.key), from_element(field.value));
      return object;
    }
    case simdjson::dom::element_type::INT64:
      return element.get_int64().value_unsafe();
    case simdjson::dom::element_type::UINT64:
      return element.get_uint64().value_unsafe();
    case simdjson::dom::element_type::DOUBLE:
      return element.get_double().value_unsafe();
    case simdjson::dom::element_type::STRING:
      return element.get_string().value_unsafe();
    case simdjson::dom::element_type::BOOL:
      return element.get_bool().value_unsafe();
    case simdjson::dom::element_type::NULL_VALUE:
      break;
  }
  return {};
}

}  // namespace

class JsonWriter {
 public:
  explicit JsonWriter(int indent) : indent_(indent) {}

  // Values are as deep as code or the limit of parse() made them.
  void write(const Json& json, int depth) {
    if (const auto* items = std::get_if<Json::Array>(&json.value_)) {
      list('[', ']', *items, depth, [&](const Json& item) { write(item, depth + 1); });
    } else if (const auto* members = std::get_if<Json::Object>(&json.value_)) {
      list('{', '}', *members, depth, [&](const Json::Object::value_type& member) {
        text(member.first);
        out_ += indent_ < 0 ? ":" : ": ";
        write(member.second, depth + 1);
      });
    } else if (json.is_string()) {
      text(json.as_string());
    } else {
      scalar(json);
    }
  }

  std::string take() { return std::move(out_); }

 private:
  template <typename Items, typename One>
  void list(char open, char close, const Items& items, int depth, One one) {
    out_ += open;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += ',';
      first = false;
      line(depth + 1);
      one(item);
    }
    if (!items.empty()) line(depth);
    out_ += close;
  }

  void line(int depth) {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<size_t>(indent_ * depth), ' ');
  }

  void scalar(const Json& json) {
    if (json.is_boolean()) {
      out_ += json.as_bool() ? "true" : "false";
    } else if (json.is_number_unsigned()) {
      number(json.as_unsigned());
    } else if (json.is_number_integer()) {
      number(json.as_integer());
    } else if (json.is_number_float() && std::isfinite(json.as_double())) {
      number(json.as_double());
    } else {
      out_ += "null";
    }
  }

  // The shortest text that reads back as the same number.
  template <typename T>
  void number(T value) {
    char buffer[32];
    const auto end = std::to_chars(std::begin(buffer), std::end(buffer), value).ptr;
    const std::string_view digits(buffer, static_cast<size_t>(end - buffer));
    out_ += digits;
    // A double stays one for readers that tell it from an integer.
    if (std::is_floating_point_v<T> && digits.find_first_of(".e") == std::string_view::npos)
      out_ += ".0";
  }

  void text(std::string_view content) {
    constexpr std::string_view kHex = "0123456789abcdef";
    out_ += '"';
    for (size_t pos = 0; pos < content.size();) {
      const size_t begin = pos;
      uint32_t code = 0;
      const bool valid = decode_utf8(content, &pos, &code);
      constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
      constexpr std::string_view kLetters = "\"\\bfnrt";
      const size_t known = code < 0x80 ? kEscaped.find(static_cast<char>(code)) : kEscaped.npos;
      if (!valid) {
        append_utf8(kReplacementChar, &out_);
      } else if (known != kEscaped.npos) {
        out_ += '\\';
        out_ += kLetters[known];
      } else if (code < 0x20) {
        out_ += "\\u00";
        out_ += kHex[code >> 4];
        out_ += kHex[code & 15];
      } else {
        out_ += content.substr(begin, pos - begin);
      }
    }
    out_ += '"';
  }

  int indent_;
  std::string out_;
};

void Json::wrong_type() {
  check_failed("a JSON value is used as what it is", std::source_location::current());
}

Json::Json(const Json& other) {
  std::visit(
      [this](const auto& value) {
        auto copy = value;
        value_ = std::move(copy);
      },
      other.value_);
}

Json::Json(std::initializer_list<Json> items) {
  const bool pairs = std::ranges::all_of(items, [](const Json& item) {
    return item.is_array() && item.size() == 2 && item[0].is_string();
  });
  if (!pairs) {
    value_ = Array(items);
    return;
  }
  Object members;
  members.reserve(items.size());
  for (const Json& item : items) members.emplace_back(item[0].as_string(), item[1]);
  value_ = std::move(members);
}

Result<Json> Json::parse(std::string_view text) {
  auto document = JsonDocument::parse(text);
  if (!document.ok()) return document.status();
  if (Status s = document->refuse_duplicate_keys(); !s.ok()) return s;
  return from_element(document->root().element());
}

int64_t Json::as_integer() const {
  if (!is_number_unsigned()) return held<int64_t>();
  check(std::in_range<int64_t>(as_unsigned()), "an integer of 63 bits");
  return static_cast<int64_t>(as_unsigned());
}

double Json::as_double() const {
  if (holds<int64_t>()) return static_cast<double>(held<int64_t>());
  if (holds<uint64_t>()) return static_cast<double>(held<uint64_t>());
  return held<double>();
}

size_t Json::size() const {
  if (is_array()) return elements().size();
  if (is_object()) return items().size();
  return is_null() ? 0 : 1;
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : items()) {
    if (name == key) return &value;
  }
  return nullptr;
}

Json* Json::find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).find(key)); }

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object();
  if (Json* known = find(key)) return *known;
  return items().emplace_back(std::string(key), Json()).second;
}

const Json& Json::at(std::string_view key) const {
  const Json* value = find(key);
  check(value != nullptr, "a JSON object has the member");
  return *value;
}

void Json::push_back(Json item) {
  if (is_null()) value_ = Array();
  elements().push_back(std::move(item));
}

void Json::update(Json other) {
  for (auto& [name, value] : other.items()) (*this)[name] = std::move(value);
}

std::string Json::dump(int indent) const {
  JsonWriter writer(indent);
  writer.write(*this, 0);
  return writer.take();
}

}  // namespace pelton
