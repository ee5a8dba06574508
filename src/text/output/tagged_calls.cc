// Calls between markers: Hermes, Mistral, DeepSeek.
#include <array>

#include "text/output/buffered_parser.h"

namespace pelton::text {
namespace {

using Kind = OutputPiece::Kind;
using State = CallReader::State;

constexpr size_t kMaxName = 256;

bool is_name_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '-' || c == '.';
}

class HermesParser final : public CallParser {
 public:
  using CallParser::CallParser;

 private:
  static constexpr std::array<std::string_view, 1> kBegin = {"<tool_call>"};
  static constexpr std::array<std::string_view, 2> kBounds = {"</tool_call>", "<tool_call>"};
  enum class At : uint8_t { kText, kCall, kBroken, kEnd };

  bool step(OutputPieces* out) override {
    switch (at_) {
      case At::kText: {
        size_t which = 0;
        if (!pass_until(kBegin, Kind::kContent, &which, out)) return false;
        reader_ = CallReader();
        at_ = At::kCall;
        return true;
      }
      case At::kCall:
        return step_call(out);
      case At::kBroken:
        if (!drop_until(kBounds)) return false;
        at_ = At::kEnd;
        return true;
      case At::kEnd:
        break;
    }
    if (!skip_space()) return false;
    if (take(kBounds[0]) == Match::kMore) return false;
    at_ = At::kText;
    trim_ = true;
    return true;
  }

  bool step_call(OutputPieces* out) {
    const State state = read_call(reader_, out);
    if (state == State::kDone) {
      at_ = At::kEnd;
    } else if (state == State::kBad && reader_.named()) {
      at_ = At::kBroken;
    } else if (state == State::kBad || (at_end() && !reader_.named())) {
      content(kBegin[0], out);
      content(reader_.raw(), out);
      at_ = At::kText;
    } else {
      return false;
    }
    return true;
  }

  At at_ = At::kText;
  CallReader reader_;
};

class MistralParser final : public CallParser {
 public:
  using CallParser::CallParser;

 private:
  static constexpr std::array<std::string_view, 1> kBegin = {"[TOOL_CALLS]"};
  enum class At : uint8_t { kText, kBody, kArray, kCall, kName, kCallId, kArguments };

  bool step(OutputPieces* out) override {
    switch (at_) {
      case At::kText: {
        size_t which = 0;
        if (!pass_until(kBegin, Kind::kContent, &which, out)) return false;
        told_ = false;
        at_ = At::kBody;
        return true;
      }
      case At::kBody:
        return step_body(out);
      case At::kArray:
        return step_array(out);
      case At::kCall:
        return step_call(out);
      case At::kName:
        return step_name(out);
      case At::kCallId:
        return step_call_id();
      case At::kArguments:
        break;
    }
    return step_arguments(out);
  }

  bool step_body(OutputPieces* out) {
    if (!skip_space()) {
      if (at_end()) give_back("", out);
      return false;
    }
    if (rest().front() == '[') {
      consume(1);
      at_ = At::kArray;
    } else if (rest().front() == '{') {
      begin_object();
    } else if (is_name_char(rest().front())) {
      at_ = At::kName;
    } else {
      give_back("", out);
    }
    return true;
  }

  bool step_array(OutputPieces* out) {
    if (!skip_space()) {
      if (at_end()) give_back("[", out);
      return false;
    }
    const char c = rest().front();
    if (c == '{') {
      begin_object();
    } else if (c == ',' || c == ']') {
      consume(1);
      if (c == ']') back_to_text();
    } else {
      give_back("[", out);
    }
    return true;
  }

  void begin_object() {
    reader_ = CallReader();
    array_ = at_ == At::kArray;
    at_ = At::kCall;
  }

  bool step_call(OutputPieces* out) {
    const State state = read_call(reader_, out);
    told_ = told_ || reader_.named();
    if (state == State::kDone) {
      if (array_) {
        at_ = At::kArray;
      } else {
        back_to_text();
      }
    } else if (state == State::kBad || (at_end() && !reader_.named())) {
      give_back(std::string(array_ ? "[" : "") + reader_.raw(), out);
    } else {
      return false;
    }
    return true;
  }

  // name{...}, name[ARGS]{...} or name[CALL_ID]...[ARGS]{...}
  bool step_name(OutputPieces* out) {
    size_t n = 0;
    while (n < rest().size() && n <= kMaxName && is_name_char(rest()[n])) ++n;
    if (n == rest().size() && n <= kMaxName && !at_end()) return false;
    const std::string name(rest().substr(0, n));
    consume(n);
    if (n <= kMaxName && !rest().empty() && rest().front() == '{') return named(name, out);
    const Match id = take("[CALL_ID]");
    const Match arguments_follow = id == Match::kNo ? take("[ARGS]") : Match::kNo;
    if (id == Match::kMore || arguments_follow == Match::kMore) {
      // The name is read again with what follows it.
      consume(0 - n);
      return false;
    }
    if (id == Match::kNo && arguments_follow == Match::kNo) {
      give_back(name, out);
      return true;
    }
    named(name, out);
    if (id == Match::kYes) at_ = At::kCallId;
    return true;
  }

  bool named(const std::string& name, OutputPieces* out) {
    begin_call(name, out);
    told_ = true;
    scanner_ = JsonScanner();
    at_ = At::kArguments;
    return true;
  }

  bool step_call_id() {
    static constexpr std::array<std::string_view, 1> kArgs = {"[ARGS]"};
    if (!drop_until(kArgs)) return false;
    consume(kArgs[0].size());
    at_ = At::kArguments;
    return true;
  }

  bool step_arguments(OutputPieces* out) {
    if (!scanner_.begun() && !skip_space()) return false;
    const std::string_view text = rest();
    for (size_t i = 0; i < text.size(); ++i) {
      const JsonScanner::Step step = scanner_.next(text[i]);
      if (step == JsonScanner::Step::kMore) continue;
      const size_t n = step == JsonScanner::Step::kLast ? i + 1 : i;
      arguments(text.substr(0, n), out);
      consume(n);
      back_to_text();
      return true;
    }
    arguments(text, out);
    consume(text.size());
    return false;
  }

  void back_to_text() {
    at_ = At::kText;
    trim_ = true;
  }

  // What looked like a call is content; after one that was told, the marker is not repeated.
  void give_back(std::string_view text, OutputPieces* out) {
    if (!told_) {
      content(kBegin[0], out);
      content(text, out);
    }
    at_ = At::kText;
  }

  At at_ = At::kText;
  bool array_ = false;
  bool told_ = false;  // a call since the marker
  CallReader reader_;
  JsonScanner scanner_;
};

class DeepSeekParser final : public CallParser {
 public:
  using CallParser::CallParser;

 private:
  static constexpr std::array<std::string_view, 4> kMarkers = {
      "<｜tool▁call▁begin｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
      "<｜tool▁call▁end｜>"};
  static constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
  enum class At : uint8_t { kText, kHead, kName, kFence, kArguments, kTail };

  bool step(OutputPieces* out) override {
    switch (at_) {
      case At::kText: {
        size_t which = 0;
        if (!pass_until(kMarkers, Kind::kContent, &which, out)) return false;
        if (which == 0) at_ = At::kHead;
        trim_ = which != 0;
        return true;
      }
      case At::kHead:
        return step_head(out);
      case At::kName:
        return step_name(out);
      case At::kFence:
        return step_fence();
      case At::kArguments:
        return step_arguments(out);
      case At::kTail:
        break;
    }
    if (!drop_until(kMarkers)) return false;
    at_ = At::kText;
    return true;
  }

  // "function" before the separator: the name follows, then JSON in a fence (V3). Anything else is
  // the name itself (V3.1).
  bool step_head(OutputPieces* out) {
    const size_t at = rest().find(kSeparator);
    if (at == std::string_view::npos) {
      if (rest().size() <= kMaxName + kSeparator.size() && !at_end()) return false;
      return give_back(kMarkers[0], out);
    }
    const std::string head(trimmed(rest().substr(0, at)));
    if (head.empty() || at > kMaxName) return give_back(kMarkers[0], out);
    consume(at + kSeparator.size());
    if (head == "function") {
      at_ = At::kName;
      return true;
    }
    return named(head, out);
  }

  bool step_name(OutputPieces* out) {
    const size_t end = rest().find_first_of("\n{`");
    if (end == std::string_view::npos && rest().size() <= kMaxName && !at_end()) return false;
    const std::string name(trimmed(rest().substr(0, std::min(end, rest().size()))));
    if (end == std::string_view::npos || end > kMaxName || name.empty())
      return give_back(std::string(kMarkers[0]) + "function" + std::string(kSeparator), out);
    consume(end);
    return named(name, out);
  }

  bool named(const std::string& name, OutputPieces* out) {
    begin_call(name, out);
    scanner_ = JsonScanner();
    at_ = At::kFence;
    return true;
  }

  bool step_fence() {
    if (!skip_space()) return false;
    const Match fence = take("```json");
    if (fence == Match::kMore) return false;
    if (fence == Match::kNo) at_ = At::kArguments;
    return true;
  }

  bool step_arguments(OutputPieces* out) {
    const std::string_view text = rest();
    for (size_t i = 0; i < text.size(); ++i) {
      const JsonScanner::Step step = scanner_.next(text[i]);
      if (step == JsonScanner::Step::kMore) continue;
      const size_t n = step == JsonScanner::Step::kLast ? i + 1 : i;
      arguments(text.substr(0, n), out);
      consume(n);
      at_ = At::kTail;
      return true;
    }
    arguments(text, out);
    consume(text.size());
    return false;
  }

  bool give_back(std::string_view text, OutputPieces* out) {
    content(text, out);
    at_ = At::kText;
    return true;
  }

  static std::string_view trimmed(std::string_view text) {
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    return text;
  }

  At at_ = At::kText;
  JsonScanner scanner_;
};

}  // namespace

std::unique_ptr<OutputParser> make_hermes_parser(OutputOptions options) {
  return std::make_unique<HermesParser>(std::move(options));
}

std::unique_ptr<OutputParser> make_mistral_parser(OutputOptions options) {
  return std::make_unique<MistralParser>(std::move(options));
}

std::unique_ptr<OutputParser> make_deepseek_parser(OutputOptions options) {
  return std::make_unique<DeepSeekParser>(std::move(options));
}

}  // namespace pelton::text
