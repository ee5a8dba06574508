#include "weights/json_events.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace pelton::weights {
namespace {

// nlohmann's event interface on one side, JsonListener on the other.
class Adapter {
 public:
  Adapter(std::string_view what, JsonListener* listener) : what_(what), listener_(listener) {}

  Status take_status() { return std::move(status_); }

  bool null() { return pass(listener_->other("null")); }
  bool boolean(bool) { return pass(listener_->other("a boolean")); }
  bool number_integer(int64_t) { return pass(listener_->other("a negative integer")); }
  bool number_unsigned(uint64_t value) { return pass(listener_->unsigned_integer(value)); }
  bool number_float(double, const std::string&) { return pass(listener_->other("a fraction")); }
  bool string(std::string& value) { return pass(listener_->string(value)); }
  bool binary(nlohmann::json::binary_t&) { return pass(listener_->other("binary")); }
  bool start_object(size_t) { return enter() && pass(listener_->begin_object()); }
  bool key(std::string& name) { return pass(listener_->key(name)); }
  bool end_object() { return leave() && pass(listener_->end_object()); }
  bool start_array(size_t) { return enter() && pass(listener_->begin_array()); }
  bool end_array() { return leave() && pass(listener_->end_array()); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    return pass(data_loss(fmt::format("not valid JSON at byte {}", position)));
  }

 private:
  bool pass(Status status) {
    if (!status.ok()) status_ = status.with_context(what_);
    return status_.ok();
  }
  bool enter() {
    if (++depth_ <= kMaxJsonDepth) return true;
    return pass(data_loss(fmt::format("JSON nested deeper than {}", kMaxJsonDepth)));
  }
  bool leave() {
    --depth_;
    return true;
  }

  std::string_view what_;
  JsonListener* listener_;
  int depth_ = 0;
  Status status_;
};

}  // namespace

Status parse_json_events(std::string_view text, std::string_view what, JsonListener* listener) {
  // The parser takes a byte order mark and treats NUL as the end of the text.
  if (text.starts_with("\xEF\xBB\xBF") || text.find('\0') != std::string_view::npos)
    return data_loss("not valid JSON: byte order mark or NUL").with_context(what);
  Adapter adapter(what, listener);
  const bool complete = nlohmann::json::sax_parse(text.begin(), text.end(), &adapter);
  Status status = adapter.take_status();
  if (!complete && status.ok()) return data_loss("not valid JSON").with_context(what);
  return status;
}

}  // namespace pelton::weights
