// Arguments of a call in Python's syntax, key=value, ..., turned into a JSON object while they
// come. Strings, numbers, True, False, None, lists, tuples and dictionaries; nothing is evaluated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pelton::text {

// The beginning of a call: a name, a bracket and what shows that arguments by name follow.
struct CallHead {
  enum class State : uint8_t { kMore, kCall, kNo };
  State state = State::kMore;
  std::string_view name;
  size_t end = 0;  // behind the bracket
};
CallHead read_call_head(std::string_view text);

class PythonArguments {
 public:
  enum class State : uint8_t { kMore, kDone, kBad };

  // Takes bytes behind the opening bracket until the closing one; returns how many.
  size_t feed(std::string_view text);
  State state() const { return state_; }
  // JSON that is new.
  std::string take();

 private:
  enum class At : uint8_t { kKeyOrClose, kKey, kEquals, kValue, kAfterValue, kString, kWord };

  bool step(char c);  // false: the byte comes again
  bool key(char c);
  bool value(char c);
  bool after_value(char c);
  void string(char c);
  void escape(char c);
  void hex(char c);
  void append_byte(char c);
  void write_comma();
  bool word(char c);
  bool close(char c);
  void open(char c);
  bool bad();

  State state_ = State::kMore;
  At at_ = At::kKeyOrClose;
  std::string json_;
  std::string word_;
  std::string open_;  // closing brackets of Python that are due
  char quote_ = 0;
  bool begun_ = false;      // "{" is written
  bool keyed_ = false;      // a key is written
  bool comma_due_ = false;  // within a list or dictionary
  bool escaped_ = false;
  int hex_left_ = 0;
  uint32_t code_ = 0;
};

}  // namespace pelton::text
