// JSON text as a stream of events, for documents too large or too hostile for a tree. Strict: UTF-8
// without a byte order mark, one value, nothing but white space after it, nesting at most
// kMaxJsonDepth. Duplicate keys are passed on: whoever listens refuses them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pelton/status.h"

namespace pelton::weights {

constexpr int kMaxJsonDepth = 64;

// Each call returns what is wrong with the event where it stands; an error ends the parse.
class JsonListener {
 public:
  virtual ~JsonListener() = default;
  virtual Status begin_object() = 0;
  virtual Status key(std::string& name) = 0;  // may be moved from
  virtual Status end_object() = 0;
  virtual Status begin_array() = 0;
  virtual Status end_array() = 0;
  virtual Status string(std::string& value) = 0;  // may be moved from
  virtual Status unsigned_integer(uint64_t value) = 0;
  // null, booleans, negative integers and fractions.
  virtual Status other(std::string_view kind) = 0;
};

// `what` begins each error message: "path: header".
Status parse_json_events(std::string_view text, std::string_view what, JsonListener* listener);

}  // namespace pelton::weights
