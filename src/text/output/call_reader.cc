#include "text/output/call_reader.h"

#include <utility>

#include "base/json_tree.h"

namespace pelton::text {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxName = 256;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool is_scalar(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '+' || c == '.';
}

// The text of a JSON string; empty when it is none.
std::string decoded(const std::string& json) {
  auto value = Json::parse(json);
  return value.ok() && value->is_string() ? value->as_string() : std::string();
}

}  // namespace

JsonScanner::Step JsonScanner::in_string(char c) {
  if (escaped_) {
    escaped_ = false;
  } else if (c == '\\') {
    escaped_ = true;
  } else if (c == '"') {
    string_ = false;
    return open_.empty() ? Step::kLast : Step::kMore;
  }
  return Step::kMore;
}

JsonScanner::Step JsonScanner::bracket(char c) {
  if (c == '{' || c == '[') {
    if (open_.size() == kMaxDepth) return Step::kBad;
    open_ += c == '{' ? '}' : ']';
    return Step::kMore;
  }
  if (open_.empty() || open_.back() != c) return Step::kBad;
  open_.pop_back();
  return open_.empty() ? Step::kLast : Step::kMore;
}

JsonScanner::Step JsonScanner::next(char c) {
  if (string_) return in_string(c);
  const bool first = !std::exchange(begun_, true);
  if (!first && open_.empty()) return is_scalar(c) ? Step::kMore : Step::kAfter;
  if (c == '"') {
    string_ = true;
    return Step::kMore;
  }
  if (c == '{' || c == '[' || c == '}' || c == ']') return bracket(c);
  if (is_scalar(c)) return Step::kMore;
  if (open_.empty()) return Step::kBad;
  return c == ',' || c == ':' || is_space(c) ? Step::kMore : Step::kBad;
}

size_t CallReader::feed(std::string_view text) {
  const bool was_named = named_;
  size_t used = 0;
  while (used < text.size() && state_ == State::kMore && named_ == was_named) {
    const char c = text[used];
    if (!take(c)) continue;
    if (!was_named) raw_ += c;
    ++used;
  }
  return used;
}

bool CallReader::take(char c) {
  if (at_ == At::kKey) {
    token_ += c;
    const JsonScanner::Step step = scanner_.next(c);
    if (token_.size() > kMaxName) bad();
    if (step != JsonScanner::Step::kLast) return true;
    key_ = decoded(token_);
    at_ = At::kColon;
    return true;
  }
  if (at_ == At::kValue && scanner_.begun()) return take_value(c);
  if (is_space(c)) return true;
  switch (at_) {
    case At::kOpen:
      if (c != '{') break;
      at_ = At::kKeyOrClose;
      return true;
    case At::kKeyOrClose:
    case At::kCommaOrClose:
      if (c == '}') {
        close();
        return state_ != State::kBad;
      }
      if (at_ == At::kCommaOrClose) {
        if (c != ',') break;
        at_ = At::kKeyOrClose;
        return true;
      }
      if (c != '"') break;
      token_ = c;
      scanner_ = JsonScanner();
      scanner_.next(c);
      at_ = At::kKey;
      return true;
    case At::kColon:
      if (c != ':') break;
      at_ = At::kValue;
      scanner_ = JsonScanner();
      return true;
    default:
      begin_value();
      if (use_ == Use::kArguments && c == '"') use_ = Use::kArgumentsText;
      return take_value(c);
  }
  bad();
  return false;
}

void CallReader::begin_value() {
  token_.clear();
  use_ = Use::kSkip;
  if (key_ == "name" && !named_) use_ = Use::kName;
  if ((key_ == "arguments" || key_ == "parameters") && !std::exchange(has_arguments_, true))
    use_ = Use::kArguments;
}

bool CallReader::take_value(char c) {
  const JsonScanner::Step step = scanner_.next(c);
  if (step == JsonScanner::Step::kBad) {
    bad();
    return false;
  }
  if (step == JsonScanner::Step::kAfter) {
    end_value();
    return state_ == State::kBad;  // else the byte comes again
  }
  if (use_ == Use::kArguments) arguments_ += c;
  if (use_ == Use::kName || use_ == Use::kArgumentsText) token_ += c;
  if (use_ == Use::kName && token_.size() > kMaxName) bad();
  if (step == JsonScanner::Step::kLast) end_value();
  return true;
}

void CallReader::end_value() {
  at_ = At::kCommaOrClose;
  if (use_ == Use::kArgumentsText) arguments_ += decoded(token_);
  if (use_ != Use::kName) return;
  name_ = decoded(token_);
  named_ = !name_.empty();
  if (!named_) bad();
}

void CallReader::close() {
  if (!named_) return bad();
  if (!has_arguments_ || (!given_ && arguments_ == "null")) arguments_ = "{}";
  state_ = State::kDone;
}

std::string CallReader::take_arguments() {
  if (!named_) return {};
  raw_.clear();
  // "null" is told when the value has ended.
  if (!given_ && state_ == State::kMore &&
      std::string_view("null").substr(0, arguments_.size()) == arguments_)
    return {};
  given_ = given_ || !arguments_.empty();
  return std::exchange(arguments_, {});
}

}  // namespace pelton::text
