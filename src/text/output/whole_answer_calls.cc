// Answers that are calls from their first character on: Llama's JSON and Python-like lists.
#include <array>
#include <utility>

#include "base/utf8.h"
#include "text/output/buffered_parser.h"
#include "text/output/python_arguments.h"

namespace pelton::text {
namespace {

using State = CallReader::State;

constexpr size_t kMaxName = 256;

class LlamaJsonParser final : public CallParser {
 public:
  using CallParser::CallParser;

 private:
  static constexpr std::string_view kTag = "<|python_tag|>";
  enum class At : uint8_t { kBegin, kCall, kBetween, kText };

  bool step(OutputPieces* out) override {
    switch (at_) {
      case At::kBegin:
        return step_begin(out);
      case At::kCall:
        return step_call(out);
      case At::kBetween:
        return step_between();
      case At::kText:
        break;
    }
    content(rest(), out);
    consume(rest().size());
    return false;
  }

  bool step_begin(OutputPieces* out) {
    size_t n = 0;
    while (n < rest().size() && n <= kMaxHeldSpace && is_space(rest()[n])) ++n;
    if (n == rest().size() && n <= kMaxHeldSpace && !at_end()) return false;
    space_ = rest().substr(0, n);
    consume(n);
    const Match tag = take(kTag);
    if (tag == Match::kMore) {
      consume(0 - n);
      return false;
    }
    const bool call = tag == Match::kYes || (!rest().empty() && rest().front() == '{');
    if (!call) content(space_, out);
    if (tag == Match::kYes) space_.clear();
    at_ = call ? At::kCall : At::kText;
    return true;
  }

  bool step_call(OutputPieces* out) {
    const State state = read_call(reader_, out);
    // A name that is no tool's: nothing was told of it, and its text is still there.
    const bool foreign = reader_.named() && !reader_.raw().empty();
    if (state == State::kMore && !foreign && !(at_end() && !reader_.named())) return false;
    if (!reader_.raw().empty()) content(space_ + reader_.raw(), out);
    space_.clear();
    at_ = state == State::kDone && !foreign ? At::kBetween : At::kText;
    return true;
  }

  bool accepts(std::string_view name) const override { return is_tool(name); }

  bool step_between() {
    while (!rest().empty() && (is_space(rest().front()) || rest().front() == ';')) consume(1);
    if (rest().empty()) return false;
    reader_ = CallReader();
    at_ = rest().front() == '{' ? At::kCall : At::kText;
    return true;
  }

  At at_ = At::kBegin;
  CallReader reader_;
  std::string space_;  // before the first brace
};

class PythonicParser final : public CallParser {
 public:
  using CallParser::CallParser;

 private:
  enum class At : uint8_t { kBegin, kName, kArguments, kBetween, kAfter, kText };
  static constexpr std::string_view kFence = "```";

  bool step(OutputPieces* out) override {
    switch (at_) {
      case At::kBegin:
        return step_begin(out);
      case At::kName:
        return step_name(out);
      case At::kArguments:
        return step_arguments(out);
      case At::kBetween:
        return step_between();
      case At::kAfter:
        return step_after();
      case At::kText:
        break;
    }
    content(held_, out);
    held_.clear();
    content(rest(), out);
    consume(rest().size());
    return false;
  }

  // Moves a byte of rest() to what is given back should this be no call.
  void hold(size_t bytes) {
    held_ += rest().substr(0, bytes);
    consume(bytes);
  }

  // White space, a code fence with or without a language, and the bracket.
  bool step_begin(OutputPieces*) {
    while (!rest().empty() && held_.size() <= kMaxHeldSpace) {
      const char c = rest().front();
      if (c == '[') {
        hold(1);
        at_ = At::kName;
        return true;
      }
      const bool letter = (c >= 'a' && c <= 'z') || c == '_';
      if (c == '`' && held_.find_first_not_of(" \t\r\n`") == std::string::npos) fenced_ = true;
      const bool fits = is_space(c) || c == '`' || (letter && fenced_ && !language_over_);
      if (!fits) break;
      if (is_space(c) && fenced_) language_over_ = true;
      hold(1);
    }
    if (rest().empty() && held_.size() <= kMaxHeldSpace && !at_end()) return false;
    at_ = At::kText;
    return true;
  }

  // name( and then a key or the closing bracket: only that is a call.
  bool step_name(OutputPieces* out) {
    const CallHead head = read_call_head(rest());
    if (head.state == CallHead::State::kMore && rest().size() <= kMaxName && !at_end())
      return false;
    if (head.state != CallHead::State::kCall || head.end > kMaxName || !is_tool(head.name)) {
      at_ = At::kText;
      return true;
    }
    held_.clear();
    begin_call(head.name, out);
    consume(head.end);
    arguments_ = PythonArguments();
    at_ = At::kArguments;
    return true;
  }

  bool step_arguments(OutputPieces* out) {
    consume(arguments_.feed(rest()));
    arguments(arguments_.take(), out);
    if (arguments_.state() == PythonArguments::State::kMore) return false;
    at_ = arguments_.state() == PythonArguments::State::kDone ? At::kBetween : At::kText;
    return true;
  }

  bool step_between() {
    if (!skip_space()) return false;
    const char c = rest().front();
    at_ = c == ',' ? At::kName : c == ']' ? At::kAfter : At::kText;
    if (at_ != At::kText) consume(1);
    return true;
  }

  bool step_after() {
    if (!skip_space()) return false;
    const Match fence = fenced_ ? take(kFence) : Match::kNo;
    if (fence == Match::kMore) return false;
    fenced_ = false;
    if (fence == Match::kNo) at_ = At::kText;
    return true;
  }

  At at_ = At::kBegin;
  std::string held_;
  bool fenced_ = false;
  bool language_over_ = false;
  PythonArguments arguments_;
};

}  // namespace

std::unique_ptr<OutputParser> make_llama_json_parser(OutputOptions options) {
  return std::make_unique<LlamaJsonParser>(std::move(options));
}

std::unique_ptr<OutputParser> make_pythonic_parser(OutputOptions options) {
  return std::make_unique<PythonicParser>(std::move(options));
}

}  // namespace pelton::text
