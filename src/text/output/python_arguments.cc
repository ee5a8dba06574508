#include "text/output/python_arguments.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/utf8.h"

namespace pelton::text {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxWord = 256;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

size_t after_space(std::string_view text, size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

// End of the identifier that begins at `at`; dots belong to it where `dotted`.
size_t after_name(std::string_view text, size_t at, bool dotted) {
  const size_t begin = at;
  while (at < text.size() && (is_letter(text[at]) || (at > begin && is_digit(text[at])) ||
                              (dotted && at > begin && text[at] == '.')))
    ++at;
  return at;
}

// A number as JSON spells it, or empty.
std::string json_number(std::string_view word) {
  std::string out;
  for (const char c : word) {
    if (c != '_') out += c;
  }
  size_t i = !out.empty() && (out[0] == '-' || out[0] == '+') ? 1 : 0;
  const std::string sign = i == 1 && out[0] == '-' ? "-" : "";
  std::string digits = out.substr(i);
  if (digits.empty()) return {};
  if (digits[0] == '.') digits.insert(0, "0");
  const size_t first = std::min(digits.find_first_not_of("0123456789"), digits.size());
  if (first == 0 || (first > 1 && digits[0] == '0')) return {};
  size_t at = first;
  if (at < digits.size() && digits[at] == '.') {
    ++at;
    if (at == digits.size() || !is_digit(digits[at])) digits.insert(at, "0");
    while (at < digits.size() && is_digit(digits[at])) ++at;
  }
  if (at < digits.size() && (digits[at] == 'e' || digits[at] == 'E')) {
    ++at;
    if (at < digits.size() && (digits[at] == '+' || digits[at] == '-')) ++at;
    if (at == digits.size()) return {};
    while (at < digits.size() && is_digit(digits[at])) ++at;
  }
  return at == digits.size() ? sign + digits : "";
}

std::string json_word(std::string_view word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  return json_number(word);
}

}  // namespace

CallHead read_call_head(std::string_view text) {
  const CallHead no{.state = CallHead::State::kNo, .name = {}, .end = 0};
  const size_t begin = after_space(text, 0);
  const size_t end = after_name(text, begin, true);
  size_t at = after_space(text, end);
  if (at == text.size()) return {};
  if (end == begin || text[at] != '(') return no;
  const CallHead call{
      .state = CallHead::State::kCall, .name = text.substr(begin, end - begin), .end = at + 1};
  at = after_space(text, at + 1);
  if (at == text.size()) return {};
  if (text[at] == ')') return call;
  const size_t key = after_name(text, at, false);
  if (key == at) return no;
  at = after_space(text, key);
  if (at == text.size()) return {};
  return text[at] == '=' ? call : no;
}

bool PythonArguments::bad() {
  state_ = State::kBad;
  return false;
}

size_t PythonArguments::feed(std::string_view text) {
  size_t used = 0;
  while (used < text.size() && state_ == State::kMore) {
    if (step(text[used])) ++used;
  }
  return used;
}

std::string PythonArguments::take() { return std::exchange(json_, {}); }

bool PythonArguments::step(char c) {
  if (!begun_) {
    json_ += '{';
    begun_ = true;
  }
  if (at_ == At::kString) {
    string(c);
    return true;
  }
  if (at_ == At::kWord) return word(c);
  if (at_ == At::kKey) return key(c);
  if (is_space(c)) return true;
  switch (at_) {
    case At::kKeyOrClose:
      if (c == ')') return close(c);
      if (!is_letter(c)) return bad();
      at_ = At::kKey;
      return false;  // the key's first character
    case At::kEquals:
      if (c != '=') return bad();
      at_ = At::kValue;
      return true;
    case At::kValue:
      return value(c);
    default:
      return after_value(c);
  }
}

bool PythonArguments::key(char c) {
  if (is_letter(c) || is_digit(c)) {
    word_ += c;
    return word_.size() <= kMaxWord || bad();
  }
  if (keyed_) json_ += ',';
  keyed_ = true;
  json_ += '"' + std::exchange(word_, {}) + "\":";
  at_ = At::kEquals;
  return false;
}

// A comma is written when a value follows it: Python allows one before a closing bracket.
void PythonArguments::write_comma() {
  if (std::exchange(comma_due_, false)) json_ += ',';
}

bool PythonArguments::value(char c) {
  if ((c == ']' || c == '}' || c == ')') && !open_.empty()) return close(c);
  write_comma();
  if (c == '"' || c == '\'') {
    quote_ = c;
    json_ += '"';
    at_ = At::kString;
    return true;
  }
  if (c == '[' || c == '{' || c == '(') {
    open(c);
    return state_ == State::kMore;
  }
  at_ = At::kWord;
  return word(c);
}

void PythonArguments::open(char c) {
  if (open_.size() == kMaxDepth) {
    bad();
    return;
  }
  json_ += c == '{' ? '{' : '[';
  open_ += c == '{' ? '}' : c == '[' ? ']' : ')';
}

// A bracket that closes a value, or the call itself.
bool PythonArguments::close(char c) {
  if (open_.empty()) {
    if (c != ')') return bad();
    json_ += '}';
    state_ = State::kDone;
    return true;
  }
  if (open_.back() != c) return bad();
  open_.pop_back();
  comma_due_ = false;
  json_ += c == '}' ? '}' : ']';
  at_ = At::kAfterValue;
  return true;
}

bool PythonArguments::after_value(char c) {
  if (c == ']' || c == '}' || c == ')') return close(c);
  if (c == ',') {
    if (open_.empty()) {
      at_ = At::kKeyOrClose;
    } else {
      comma_due_ = true;
      at_ = At::kValue;
    }
    return true;
  }
  if (c != ':' || open_.empty() || open_.back() != '}') return bad();
  json_ += ':';
  at_ = At::kValue;
  return true;
}

bool PythonArguments::word(char c) {
  const bool part = is_letter(c) || is_digit(c) || c == '.' || c == '-' || c == '+';
  if (part) {
    word_ += c;
    return word_.size() <= kMaxWord || bad();
  }
  const std::string json = json_word(std::exchange(word_, {}));
  if (json.empty()) return bad();
  json_ += json;
  at_ = At::kAfterValue;
  return false;
}

void PythonArguments::string(char c) {
  if (hex_left_ > 0) return hex(c);
  if (std::exchange(escaped_, false)) return escape(c);
  if (c == '\\') {
    escaped_ = true;
  } else if (c == quote_) {
    json_ += '"';
    at_ = At::kAfterValue;
  } else {
    append_byte(c);
  }
}

void PythonArguments::append_byte(char c) {
  if (c == '"' || c == '\\') {
    json_ += '\\';
    json_ += c;
  } else if (static_cast<unsigned char>(c) < 0x20) {
    json_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
  } else {
    json_ += c;
  }
}

void PythonArguments::escape(char c) {
  constexpr std::string_view kNames = "ntrbfav0";
  constexpr std::string_view kBytes("\n\t\r\b\f\a\v\0", 8);
  code_ = 0;
  if (c == 'x') {
    hex_left_ = 2;
  } else if (c == 'u') {
    hex_left_ = 4;
  } else if (c == 'U') {
    hex_left_ = 8;
  } else if (c == '\'' || c == '"' || c == '\\') {
    append_byte(c);
  } else if (const size_t at = kNames.find(c); at != std::string_view::npos) {
    append_byte(kBytes[at]);
  } else if (c != '\n') {
    append_byte('\\');
    append_byte(c);
  }
}

void PythonArguments::hex(char c) {
  const bool lower = c >= 'a' && c <= 'f';
  const bool upper = c >= 'A' && c <= 'F';
  if (!is_digit(c) && !lower && !upper) {
    bad();
    return;
  }
  const int digit = is_digit(c) ? c - '0' : (lower ? c - 'a' : c - 'A') + 10;
  code_ = code_ << 4 | static_cast<uint32_t>(digit);
  if (--hex_left_ > 0) return;
  const bool character = code_ < 0xD800 || (code_ > 0xDFFF && code_ <= 0x10FFFF);
  if (character && code_ < 0x80) {
    append_byte(static_cast<char>(code_));
  } else {
    append_utf8(character ? code_ : kReplacementChar, &json_);
  }
}

}  // namespace pelton::text
