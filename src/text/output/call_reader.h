// A call as JSON, read byte by byte: {"name": "f", "arguments": {...}} in either order of keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pelton::text {

// Finds where a JSON value ends. Looks at brackets and strings, not at every rule.
class JsonScanner {
 public:
  enum class Step : uint8_t {
    kMore,   // the byte belongs to the value
    kLast,   // it is the value's last
    kAfter,  // the value ended before it
    kBad,    // it cannot stand there
  };
  Step next(char c);
  bool begun() const { return begun_; }

 private:
  Step in_string(char c);
  Step bracket(char c);

  std::string open_;  // closing brackets that are due
  bool begun_ = false;
  bool string_ = false;
  bool escaped_ = false;
};

class CallReader {
 public:
  enum class State : uint8_t { kMore, kDone, kBad };

  // Takes bytes until the object is complete or cannot be a call, or until its name is known;
  // returns how many.
  size_t feed(std::string_view text);
  State state() const { return state_; }
  bool named() const { return named_; }
  const std::string& name() const { return name_; }
  // JSON of the arguments that is new; nothing before the name is known.
  std::string take_arguments();
  // What was read, until take_arguments() is called with a name known.
  const std::string& raw() const { return raw_; }

 private:
  enum class At : uint8_t { kOpen, kKeyOrClose, kKey, kColon, kValue, kCommaOrClose };

  bool take(char c);  // false: the byte is not consumed
  bool take_value(char c);
  void begin_value();
  void end_value();
  void close();
  void bad() { state_ = State::kBad; }

  State state_ = State::kMore;
  At at_ = At::kOpen;
  JsonScanner scanner_;
  std::string token_;  // a key, or a value that is needed as a whole
  std::string key_;
  enum class Use : uint8_t { kSkip, kName, kArguments, kArgumentsText } use_ = Use::kSkip;
  bool named_ = false;
  bool has_arguments_ = false;
  bool given_ = false;  // some of the arguments have been taken
  std::string name_;
  std::string arguments_;
  std::string raw_;
};

}  // namespace pelton::text
