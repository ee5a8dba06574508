#include "server/json_writer.h"

#include <fmt/core.h>

#include <cmath>
#include <iterator>

#include "base/utf8.h"

namespace pelton::server {
namespace {

// Bytes from `pos` on that need no escape.
size_t plain_run(std::string_view text, size_t pos) {
  size_t end = pos;
  while (end < text.size()) {
    const auto c = static_cast<unsigned char>(text[end]);
    if (c < 0x20 || c >= 0x7F || c == '"' || c == '\\') break;
    ++end;
  }
  return end - pos;
}

void append_ascii(char c, std::string* out) {
  switch (c) {
    case '"':
      *out += "\\\"";
      return;
    case '\\':
      *out += "\\\\";
      return;
    case '\n':
      *out += "\\n";
      return;
    case '\r':
      *out += "\\r";
      return;
    case '\t':
      *out += "\\t";
      return;
    default:
      *out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
  }
}

}  // namespace

void append_json_string(std::string_view text, std::string* out) {
  *out += '"';
  size_t pos = 0;
  while (pos < text.size()) {
    const size_t run = plain_run(text, pos);
    out->append(text.substr(pos, run));
    pos += run;
    if (pos == text.size()) break;
    if (static_cast<unsigned char>(text[pos]) < 0x80) {
      append_ascii(text[pos++], out);
      continue;
    }
    const size_t begin = pos;
    uint32_t code = 0;
    if (decode_utf8(text, &pos, &code)) {
      out->append(text.substr(begin, pos - begin));
    } else {
      *out += "\xEF\xBF\xBD";
    }
  }
  *out += '"';
}

void JsonWriter::separate() {
  if (comma_) out_ += ',';
  comma_ = true;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  out_ += bracket;
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  append_json_string(name, &out_);
  out_ += ':';
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  append_json_string(text, &out_);
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t value) {
  separate();
  out_ += fmt::format("{}", value);
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  if (!std::isfinite(value)) return null();
  separate();
  out_ += fmt::format("{}", value);
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

void append_sse(std::string_view event, std::string_view json, std::string* out) {
  if (!event.empty()) {
    *out += "event: ";
    *out += event;
    *out += '\n';
  }
  *out += "data: ";
  *out += json;
  *out += "\n\n";
}

}  // namespace pelton::server
