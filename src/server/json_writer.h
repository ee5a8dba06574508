// Writes JSON text. Whatever bytes a string holds, the result is valid JSON in valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace pelton::server {

// `text` between quotes, escaped; malformed UTF-8 becomes U+FFFD. Holds no line end, so it may
// stand in a server-sent event.
void append_json_string(std::string_view text, std::string* out);

// Values one after another; commas come by themselves. Nesting is the caller's duty.
class JsonWriter {
 public:
  JsonWriter() = default;
  // Goes on behind a member of an object that has begun.
  explicit JsonWriter(std::string begun) : out_(std::move(begun)), comma_(true) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);
  JsonWriter& string(std::string_view text);
  JsonWriter& integer(int64_t value);
  JsonWriter& number(double value);  // not finite: null
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& null() { return raw("null"); }
  JsonWriter& raw(std::string_view json);  // a value that is JSON already

  // key and value in one.
  JsonWriter& field(std::string_view name, std::string_view text) { return key(name).string(text); }
  JsonWriter& field(std::string_view name, const char* text) { return key(name).string(text); }
  JsonWriter& field(std::string_view name, int64_t value) { return key(name).integer(value); }

  const std::string& text() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();

  std::string out_;
  bool comma_ = false;
};

// One server-sent event: "data: JSON\n\n", with an event name before it when there is one.
void append_sse(std::string_view event, std::string_view json, std::string* out);

}  // namespace pelton::server
