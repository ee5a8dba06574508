// Patterns without a hand-written matcher, by PCRE2 under limits on steps, depth and memory.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <memory>

#include "text/matcher.h"
#include "text/unicode.h"

namespace pelton::text {
namespace {

constexpr uint32_t kMatchLimit = 1'000'000, kDepthLimit = 10'000, kHeapLimitKiB = 16'384;
constexpr size_t kMaxPattern = 64u << 10;
// A pattern is matched inside windows of this size, so that one that looks ahead over a whole run
// from each of its characters costs at most this times the text.
constexpr size_t kWindow = 16u << 10;

// The inside of a character class for all characters with one of `mask`'s property bits: PCRE2's
// own Unicode is older than the reference's.
template <typename Inside>
std::string ranges_where(Inside inside) {
  std::string out;
  for (uint32_t code = 0; code < 0x110000;) {
    if (!inside(code)) {
      ++code;
      continue;
    }
    uint32_t last = code;
    while (last + 1 < 0x110000 && inside(last + 1)) ++last;
    out += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", code, last);
    code = last + 1;
  }
  return out;
}

std::string ranges_of(uint16_t mask) {
  return ranges_where([&](uint32_t code) { return (char_bits(code) & mask) != 0; });
}

// \s, \w, \d and the properties that the character table holds; empty for any other.
std::string class_inside(std::string_view name) {
  if (name == "s") return ranges_of(kSpace);
  // Oniguruma counts the digit-like characters of Latin-1 as word characters, but no joiners.
  if (name == "w") {
    return ranges_where([](uint32_t code) {
      const bool digit_like =
          code == 0xB2 || code == 0xB3 || code == 0xB9 || (code >= 0xBC && code <= 0xBE);
      const bool joiner = code == 0x200C || code == 0x200D;
      return digit_like || ((char_bits(code) & kWord) != 0 && !joiner);
    });
  }
  if (name == "d" || name == "Nd") return ranges_of(kDecimal);
  if (name == "L") return ranges_of(kLetter);
  if (name == "N") return ranges_of(kNumber);
  if (name == "M") return ranges_of(kMark);
  if (name == "P") return ranges_of(kPunctuation);
  if (name == "S") return ranges_of(kSymbol);
  if (name == "Ll") return ranges_of(kLower);
  if (name == "Han") return ranges_of(kHan);
  return {};
}

// Where Oniguruma (Ruby syntax), which the reference uses, and PCRE2 differ: classes get explicit
// ranges, what means something else or nothing there is refused.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (pos_ < in_.size()) {
      Status s = in_[pos_] == '\\' ? escape() : plain();
      if (!s.ok()) return s;
    }
    if (in_class_) return refused("an unclosed character class");
    return out_;
  }

 private:
  static Status refused(std::string_view what) {
    return unsupported(fmt::format("pattern: {} is not supported", what));
  }

  Status escape() {
    if (pos_ + 1 >= in_.size()) return refused("a backslash at the end");
    const char c = in_[pos_ + 1];
    constexpr std::string_view kRefused = "hHRXKGgkNOCQEyYuU";
    if (kRefused.find(c) != std::string_view::npos) {
      return refused(fmt::format("\\{}", c));
    }
    pos_ += 2;
    std::string name(1, c);
    if (c == 'p' && in_.substr(pos_).starts_with("{")) {
      const size_t end = in_.find('}', pos_);
      if (end == std::string_view::npos) return refused("an unclosed property name");
      name = in_.substr(pos_ + 1, end - pos_ - 1);
      const std::string inside = class_inside(name);
      if (!inside.empty()) {
        pos_ = end + 1;
        out_ += in_class_ ? inside : fmt::format("[{}]", inside);
        return {};
      }
    } else if (c == 's' || c == 'w' || c == 'd') {
      const std::string inside = class_inside(name);
      out_ += in_class_ ? inside : fmt::format("[{}]", inside);
      return {};
    } else if (!in_class_ && (c == 'S' || c == 'W' || c == 'D')) {
      out_ += fmt::format("[^{}]", class_inside(std::string(1, static_cast<char>(c + 32))));
      return {};
    }
    out_ += '\\';
    out_ += c;
    return {};
  }

  Status plain() {
    const std::string_view rest = in_.substr(pos_);
    if (in_class_) {
      if (rest.starts_with("&&")) return refused("an intersection of character classes");
      if (rest.starts_with("[") && !rest.starts_with("[:")) {
        return refused("a character class in another");
      }
      if (rest.starts_with("]") && pos_ != class_begin_) in_class_ = false;
    } else if (rest.starts_with("[")) {
      in_class_ = true;
      class_begin_ = pos_ + (rest.starts_with("[^") ? 2 : 1);
      if (rest.starts_with("[^")) {
        out_ += '[';
        ++pos_;
      }
    } else if (rest.starts_with("(*") || rest.starts_with("(?C") || rest.starts_with("(?R") ||
               rest.starts_with("(?&") || rest.starts_with("(?P") || rest.starts_with("(?(")) {
      return refused(fmt::format("\"{}\"", rest.substr(0, 3)));
    } else if (rest.starts_with("(?") && rest.size() > 2 &&
               (rest[2] == 'm' || rest[2] == 's' || (rest[2] >= '0' && rest[2] <= '9'))) {
      return refused(fmt::format("\"{}\"", rest.substr(0, 3)));
    }
    out_ += in_[pos_++];
    return {};
  }

  std::string_view in_;
  size_t pos_ = 0;
  bool in_class_ = false;
  size_t class_begin_ = 0;
  std::string out_;
};

class RegexMatcher : public Matcher {
 public:
  RegexMatcher(pcre2_code* code, pcre2_match_context* limits) : code_(code), limits_(limits) {}

  // Where a limit strikes, the rest of the window counts as matching nothing.
  bool next(std::string_view text, size_t from, Span* match) const override {
    const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr), pcre2_match_data_free);
    while (from < text.size()) {
      const size_t end = window_end(text, from);
      const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
      const int rc = pcre2_match(code_.get(), subject, end, from, PCRE2_NO_UTF_CHECK, data.get(),
                                 limits_.get());
      if (rc > 0) {
        const PCRE2_SIZE* place = pcre2_get_ovector_pointer(data.get());
        if (place[1] > place[0] && place[0] >= from) {
          *match = {place[0], place[1]};
          return true;
        }
      }
      from = end;
    }
    return false;
  }

 private:
  static size_t window_end(std::string_view text, size_t from) {
    // Fixed windows from the text's start: where they end does not depend on earlier matches.
    size_t end = (from / kWindow + 1) * kWindow;
    if (end >= text.size()) return text.size();
    while (end > from + 1 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
    return end;
  }

  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_context, Free> limits_;
};

}  // namespace

Result<std::unique_ptr<Matcher>> regex_matcher(std::string_view pattern) {
  if (pattern.size() > kMaxPattern) return invalid_argument("pattern: longer than 64 KiB");
  auto translated = Translator(pattern).run();
  if (!translated.ok()) return translated.status();
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 64);
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &place, context.get());
  if (code == nullptr) {
    PCRE2_UCHAR message[160];
    pcre2_get_error_message(error, message, sizeof(message));
    return data_loss(
        fmt::format("pattern: {} at byte {}", reinterpret_cast<const char*>(message), place));
  }
  pcre2_match_context* limits = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(limits, kMatchLimit);
  pcre2_set_depth_limit(limits, kDepthLimit);
  pcre2_set_heap_limit(limits, kHeapLimitKiB);
  auto matcher = std::make_unique<RegexMatcher>(code, limits);
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) return unsupported("pattern: it can match nothing at all");
  return std::unique_ptr<Matcher>(std::move(matcher));
}

}  // namespace pelton::text
