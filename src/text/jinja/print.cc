#include "text/jinja/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/unicode.h"

namespace pelton::text::jinja {
namespace {

void append_repr_char(TextBuilder& out, uint32_t code, std::string_view raw, char quote,
                      bool from_user) {
  if (code == '\\' || code == static_cast<uint32_t>(quote)) {
    out.append("\\", from_user);
    out.append(raw, from_user);
  } else if (code == '\n') {
    out.append("\\n", from_user);
  } else if (code == '\r') {
    out.append("\\r", from_user);
  } else if (code == '\t') {
    out.append("\\t", from_user);
  } else if (is_printable(code)) {
    out.append(raw, from_user);
  } else if (code < 0x100) {
    out.append(fmt::format("\\x{:02x}", code), from_user);
  } else if (code < 0x10000) {
    out.append(fmt::format("\\u{:04x}", code), from_user);
  } else {
    out.append(fmt::format("\\U{:08x}", code), from_user);
  }
}

void append_text_repr(TextBuilder& out, const Text& text) {
  const bool single = text.view().find('\'') != std::string_view::npos;
  const char quote = single && text.view().find('"') == std::string_view::npos ? '"' : '\'';
  out.append(std::string_view(&quote, 1));
  if (!out.run().spend(static_cast<int64_t>(text.size() / 16))) return;
  for_each_part(text, 0, text.size(), [&](std::string_view part, bool from_user) {
    size_t at = 0;
    uint32_t code = 0;
    while (at < part.size() && out.run().ok()) {
      const size_t begin = at;
      decode_utf8(part, &at, &code);
      append_repr_char(out, code, part.substr(begin, at - begin), quote, from_user);
    }
  });
  out.append(std::string_view(&quote, 1));
}

void append_items(TextBuilder& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size() && out.run().ok(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(out, items[i]);
  }
}

void append_dict_repr(TextBuilder& out, const DictData& dict) {
  out.append("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!out.run().ok()) return;
    if (!first) out.append(", ");
    first = false;
    append_repr(out, key);
    out.append(": ");
    append_repr(out, value);
  }
  out.append("}");
}

void append_json_text(TextBuilder& out, const Text& text, bool ensure_ascii) {
  out.append("\"");
  for_each_part(text, 0, text.size(), [&](std::string_view part, bool from_user) {
    size_t plain = 0;
    size_t at = 0;
    while (at < part.size() && out.run().ok()) {
      const size_t begin = at;
      uint32_t code = 0;
      decode_utf8(part, &at, &code);
      std::string escaped;
      switch (code) {
        case '"':
          escaped = "\\\"";
          break;
        case '\\':
          escaped = "\\\\";
          break;
        case '\n':
          escaped = "\\n";
          break;
        case '\r':
          escaped = "\\r";
          break;
        case '\t':
          escaped = "\\t";
          break;
        case '\f':
          escaped = "\\f";
          break;
        case '\b':
          escaped = "\\b";
          break;
        default:
          if (code < 0x20 || (ensure_ascii && code >= 0x7F && code < 0x10000)) {
            escaped = fmt::format("\\u{:04x}", code);
          } else if (ensure_ascii && code >= 0x10000) {
            escaped = fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10),
                                  0xDC00 + ((code - 0x10000) & 0x3FF));
          } else {
            continue;
          }
      }
      out.append(part.substr(plain, begin - plain), from_user);
      out.append(escaped, from_user);
      plain = at;
    }
    out.append(part.substr(plain), from_user);
  });
  out.append("\"");
}

class JsonWriter {
 public:
  JsonWriter(TextBuilder& out, const JsonStyle& style) : out_(out), style_(style) {}

  void write(const Value& value) {
    Run& run = out_.run();
    if (!run.spend(1)) return;
    if (const auto* text = value.get_if<Text>()) {
      append_json_text(out_, *text, style_.ensure_ascii);
    } else if (write_scalar(value)) {
    } else if (const auto* items = value.items()) {
      write_list(*items);
    } else if (const auto* dict = value.get_if<Dict>()) {
      write_dict(*dict->data);
    } else {
      run.fail(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
    }
  }

 private:
  bool write_scalar(const Value& value) {
    if (value.none()) {
      out_.append("null");
    } else if (const auto* b = value.get_if<bool>()) {
      out_.append(*b ? "true" : "false");
    } else if (const auto* i = value.get_if<int64_t>()) {
      out_.append(std::to_string(*i));
    } else if (const auto* d = value.get_if<double>()) {
      out_.append(std::isnan(*d)   ? "NaN"
                  : std::isinf(*d) ? (*d > 0 ? "Infinity" : "-Infinity")
                                   : float_repr(*d));
    } else {
      return false;
    }
    return true;
  }

  void open(std::string_view bracket) {
    out_.append(bracket);
    ++level_;
    new_line();
  }
  void close(std::string_view bracket) {
    --level_;
    new_line();
    out_.append(bracket);
  }
  void new_line() {
    if (!style_.indented) return;
    out_.append("\n");
    for (int i = 0; i < level_; ++i) out_.append(style_.indent);
  }
  void separate() {
    out_.append(style_.item_separator);
    new_line();
  }

  void write_list(const std::vector<Value>& items) {
    if (items.empty()) return out_.append("[]");
    open("[");
    for (size_t i = 0; i < items.size() && out_.run().ok(); ++i) {
      if (i > 0) separate();
      write(items[i]);
    }
    close("]");
  }

  void write_key(const Value& key) {
    if (key.string()) return write(key);
    out_.append("\"");
    if (!write_scalar(key)) {
      out_.run().fail(
          fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
    out_.append("\"");
  }

  void write_dict(const DictData& dict) {
    if (dict.entries.empty()) return out_.append("{}");
    std::vector<const std::pair<Value, Value>*> order;
    for (const auto& entry : dict.entries) order.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) {
        return less(out_.run(), a->first, b->first);
      });
    }
    open("{");
    for (size_t i = 0; i < order.size() && out_.run().ok(); ++i) {
      if (i > 0) separate();
      write_key(order[i]->first);
      out_.append(style_.key_separator);
      write(order[i]->second);
    }
    close("}");
  }

  TextBuilder& out_;
  const JsonStyle& style_;
  int level_ = 0;
};

void append_namespace(TextBuilder& out, const NamespaceData& data) {
  // Contents may lead back to the namespace itself, so nested ones are named only.
  out.append("<Namespace {");
  bool first = true;
  for (const auto& [name, value] : data.attributes) {
    if (!first) out.append(", ");
    first = false;
    append_repr(out, Text(name));
    out.append(": ");
    if (value.is<Namespace>() || value.depth() > 0) {
      out.append("...");
    } else {
      append_repr(out, value);
    }
  }
  out.append("}>");
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t e = text.find('e');
  const bool negative = text.front() == '-';
  std::string digits;
  for (char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  int exponent = 0;
  for (char c : text.substr(e + 2)) exponent = exponent * 10 + (c - '0');
  if (text[e + 1] == '-') exponent = -exponent;
  std::string out = negative ? "-" : "";
  const auto count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  const auto whole = static_cast<size_t>(exponent + 1);
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

void append_str(TextBuilder& out, const Value& value) {
  if (const auto* text = value.get_if<Text>()) return out.append(*text);
  if (value.undefined()) return;
  append_repr(out, value);
}

void append_repr(TextBuilder& out, const Value& value) {
  if (!out.run().spend(1)) return;
  if (const auto* text = value.get_if<Text>()) return append_text_repr(out, *text);
  if (value.undefined()) return out.append("Undefined");
  if (value.none()) return out.append("None");
  if (const auto* b = value.get_if<bool>()) return out.append(*b ? "True" : "False");
  if (const auto* i = value.get_if<int64_t>()) return out.append(std::to_string(*i));
  if (const auto* d = value.get_if<double>()) return out.append(float_repr(*d));
  if (const auto* dict = value.get_if<Dict>()) return append_dict_repr(out, *dict->data);
  if (const auto* space = value.get_if<Namespace>()) return append_namespace(out, *space->data);
  if (value.is<List>()) {
    out.append("[");
    append_items(out, *value.items());
    out.append("]");
  } else if (value.is<Tuple>()) {
    out.append("(");
    append_items(out, *value.items());
    out.append(value.items()->size() == 1 ? ",)" : ")");
  } else if (const auto* view = value.get_if<View>()) {
    out.append(fmt::format("{}([", view->name));
    append_items(out, view->items->items);
    out.append("])");
  } else {
    out.append(fmt::format("<{}>", type_name(value)));
  }
}

Text to_text(Run& run, const Value& value) {
  if (const auto* text = value.get_if<Text>()) return *text;
  TextBuilder out(run);
  append_str(out, value);
  return out.take();
}

void append_json(TextBuilder& out, const Value& value, const JsonStyle& style) {
  JsonWriter(out, style).write(value);
}

}  // namespace pelton::text::jinja
