// Hand-written equivalents of the pre-tokenizer patterns of the GPT family. Each reads a run of
// characters of one kind once or twice, so a text costs linear time whatever it holds.
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "text/matcher.h"
#include "text/unicode.h"

namespace pelton::text {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

struct Reader {
  std::string_view text;

  bool done(size_t pos) const { return pos >= text.size(); }
  Char at(size_t pos) const { return char_at(text, pos); }
  uint16_t bits(size_t pos) const { return char_bits(at(pos).code); }
  bool newline(size_t pos) const { return !done(pos) && (text[pos] == '\r' || text[pos] == '\n'); }
  // End of the longest run of characters with one of `mask`'s bits.
  size_t run(size_t pos, uint16_t mask) const {
    while (!done(pos)) {
      const Char c = at(pos);
      if ((char_bits(c.code) & mask) == 0) break;
      pos += c.length;
    }
    return pos;
  }
  size_t run_without(size_t pos, uint16_t mask) const {
    while (!done(pos)) {
      const Char c = at(pos);
      if ((char_bits(c.code) & mask) != 0) break;
      pos += c.length;
    }
    return pos;
  }
};

enum class Contractions { kNone, kExact, kAnyCase };

// 's 't 'm 'd 're 've 'll at `pos`: its end, or `pos`. Without regard to case the long s (U+017F)
// counts as an s.
size_t contraction(const Reader& in, size_t pos, Contractions kind) {
  if (kind == Contractions::kNone || in.text[pos] != '\'' || in.done(pos + 1)) return pos;
  const auto letter = [&](size_t at) -> char {
    if (in.done(at)) return 0;
    const char c = in.text[at];
    return kind == Contractions::kAnyCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = letter(pos + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return pos + 2;
  const char second = letter(pos + 2);
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
      (first == 'l' && second == 'l')) {
    return pos + 3;
  }
  if (kind == Contractions::kAnyCase && in.at(pos + 1).code == 0x17F) return pos + 3;
  return pos;
}

// `\s*[\r\n]+|\s+(?!\S)|\s+` at a space; without `lines` the first alternative is absent.
size_t spaces(const Reader& in, size_t pos, bool lines) {
  size_t end = pos, last = pos, after_line = pos;
  while (!in.done(end)) {
    const Char c = in.at(end);
    if ((char_bits(c.code) & kSpace) == 0) break;
    last = end;
    end += c.length;
    if (c.code == '\r' || c.code == '\n') after_line = end;
  }
  if (lines && after_line > pos) return after_line;
  return in.done(end) || last == pos ? end : last;
}

class CompleteMatcher : public Matcher {
 public:
  bool next(std::string_view text, size_t from, Span* match) const override {
    if (from >= text.size()) return false;
    *match = {from, end_of({text}, from)};
    return true;
  }

 protected:
  virtual size_t end_of(const Reader& in, size_t pos) const = 0;
};

// 's|...| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
class Gpt2Matcher : public CompleteMatcher {
  size_t end_of(const Reader& in, size_t pos) const override {
    if (const size_t end = contraction(in, pos, Contractions::kExact); end > pos) return end;
    const size_t at = in.text[pos] == ' ' && !in.done(pos + 1) ? pos + 1 : pos;
    const uint16_t bits = in.bits(at);
    if (bits & kLetter) return in.run(at, kLetter);
    if (bits & kNumber) return in.run(at, kNumber);
    if (!(bits & kSpace)) return in.run_without(at, kSpace | kLetter | kNumber);
    return spaces(in, pos, false);
  }
};

struct ChatPattern {
  uint16_t letters;  // what a word is made of
  int max_digits;
  bool slash_tail;  // [\r\n/]* after other characters instead of [\r\n]*
};

// (?i:'s|...)|[^\r\n\p{L}\p{N}]?LETTERS+|\p{N}{1,D}| ?[^\s LETTERS \p{N}]+[\r\n]*|\s*[\r\n]+|...
class ChatMatcher : public CompleteMatcher {
 public:
  explicit ChatMatcher(const ChatPattern& pattern) : pattern_(pattern) {}

 private:
  size_t end_of(const Reader& in, size_t pos) const override {
    if (const size_t end = contraction(in, pos, Contractions::kAnyCase); end > pos) return end;
    const Char c = in.at(pos);
    const uint16_t bits = char_bits(c.code);
    const size_t after = pos + c.length;
    const bool may_lead = !(bits & (kLetter | kNumber)) && c.code != '\r' && c.code != '\n';
    if (may_lead && !in.done(after) && (in.bits(after) & pattern_.letters)) {
      return in.run(after, pattern_.letters);
    }
    if (bits & pattern_.letters) return in.run(pos, pattern_.letters);
    if (bits & kNumber) return digits(in, pos);
    const uint16_t known = kSpace | kNumber | pattern_.letters;
    const size_t at = c.code == ' ' && !in.done(after) ? after : pos;
    if (!(in.bits(at) & known)) {
      size_t end = in.run_without(at, known);
      while (in.newline(end)) ++end;
      return end;
    }
    return spaces(in, pos, true);
  }

  size_t digits(const Reader& in, size_t pos) const {
    for (int i = 0; i < pattern_.max_digits && !in.done(pos); ++i) {
      const Char c = in.at(pos);
      if (!(char_bits(c.code) & kNumber)) break;
      pos += c.length;
    }
    return pos;
  }

  ChatPattern pattern_;
};

// Words split by case, as in o200k: UPPER*LOWER+ or UPPER+LOWER*, where letters without case and
// marks count as both.
class CaseMatcher : public CompleteMatcher {
 public:
  CaseMatcher(int max_digits, Contractions contractions)
      : max_digits_(max_digits), contractions_(contractions) {}

 private:
  static bool lower(uint16_t bits) {
    return (bits & (kLetter | kMark)) != 0 && (bits & kUpper) == 0;
  }
  static bool upper(uint16_t bits) {
    return (bits & (kLetter | kMark)) != 0 && (bits & kLower) == 0;
  }
  // End of UPPER*LOWER+ at `pos`, or `pos`; *upper_end gets the end of UPPER*.
  static size_t mixed(const Reader& in, size_t pos, size_t* upper_end) {
    size_t end = pos, after_both = pos;
    while (!in.done(end)) {
      const Char c = in.at(end);
      const uint16_t bits = char_bits(c.code);
      if (!upper(bits)) break;
      end += c.length;
      if (lower(bits)) after_both = end;
    }
    *upper_end = end;
    size_t lower_end = end;
    while (!in.done(lower_end)) {
      const Char c = in.at(lower_end);
      if (!lower(char_bits(c.code))) break;
      lower_end += c.length;
    }
    return lower_end > end ? lower_end : after_both;
  }

  size_t with_contraction(const Reader& in, size_t end) const {
    return in.done(end) ? end : contraction(in, end, contractions_);
  }

  // Either word alternative at `pos`, or `pos`. A mark may lead like any other character.
  size_t word(const Reader& in, size_t pos) const {
    const Char c = in.at(pos);
    const bool may_lead =
        !(char_bits(c.code) & (kLetter | kNumber)) && c.code != '\r' && c.code != '\n';
    const size_t after = pos + c.length;
    size_t lead_upper = after, plain_upper = pos;
    if (may_lead) {
      const size_t end = mixed(in, after, &lead_upper);
      if (end > after) return with_contraction(in, end);
    }
    const size_t end = mixed(in, pos, &plain_upper);
    if (end > pos) return with_contraction(in, end);
    if (may_lead && lead_upper > after) return with_contraction(in, lead_upper);
    if (plain_upper > pos) return with_contraction(in, plain_upper);
    return pos;
  }

  size_t end_of(const Reader& in, size_t pos) const override {
    if (const size_t end = word(in, pos); end > pos) return end;
    const Char c = in.at(pos);
    const uint16_t bits = char_bits(c.code);
    if (bits & kNumber) {
      size_t end = pos;
      for (int i = 0; i < max_digits_ && !in.done(end); ++i) {
        const Char digit = in.at(end);
        if (!(char_bits(digit.code) & kNumber)) break;
        end += digit.length;
      }
      return end;
    }
    const uint16_t known = kSpace | kNumber | kLetter;
    const size_t at = c.code == ' ' && !in.done(pos + 1) ? pos + 1 : pos;
    if (!(in.bits(at) & known)) {
      size_t end = in.run_without(at, known);
      while (in.newline(end) || (!in.done(end) && in.text[end] == '/')) ++end;
      return end;
    }
    return spaces(in, pos, true);
  }

  int max_digits_;
  Contractions contractions_;
};

// DeepSeek V3: [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
// | ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ ; numbers and controls match nothing.
class DeepSeekMatcher : public Matcher {
 public:
  bool next(std::string_view text, size_t from, Span* match) const override {
    const Reader in{text};
    for (size_t pos = from; !in.done(pos); pos += in.at(pos).length) {
      const size_t end = end_of(in, pos);
      if (end == pos) continue;
      *match = {pos, end};
      return true;
    }
    return false;
  }

 private:
  static bool ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

  static size_t end_of(const Reader& in, size_t pos) {
    const Char c = in.at(pos);
    const uint16_t bits = char_bits(c.code);
    const size_t after = pos + c.length;
    if (c.code < 0x80 && (bits & (kPunctuation | kSymbol)) && !in.done(after) &&
        ascii_letter(in.text[after])) {
      size_t end = after;
      while (!in.done(end) && ascii_letter(in.text[end])) ++end;
      return end;
    }
    const bool may_lead =
        !(bits & (kLetter | kPunctuation | kSymbol)) && c.code != '\r' && c.code != '\n';
    if (may_lead && !in.done(after) && (in.bits(after) & (kLetter | kMark))) {
      return in.run(after, kLetter | kMark);
    }
    if (bits & (kLetter | kMark)) return in.run(pos, kLetter | kMark);
    const size_t at = c.code == ' ' && !in.done(after) ? after : pos;
    if (in.bits(at) & (kPunctuation | kSymbol)) {
      size_t end = in.run(at, kPunctuation | kSymbol);
      while (in.newline(end)) ++end;
      return end;
    }
    return bits & kSpace ? spaces(in, pos, true) : pos;
  }
};

// CLASS{1,limit}, CLASS given by property bits or by code point ranges.
class RunMatcher : public Matcher {
 public:
  struct Range {
    uint32_t first, last;
  };
  RunMatcher(uint16_t mask, size_t limit) : mask_(mask), limit_(limit) {}
  explicit RunMatcher(std::vector<Range> ranges) : ranges_(std::move(ranges)) {}

  bool next(std::string_view text, size_t from, Span* match) const override {
    size_t pos = from;
    while (pos < text.size() && !contains(char_at(text, pos).code)) {
      pos += char_at(text, pos).length;
    }
    if (pos >= text.size()) return false;
    *match = {pos, pos};
    for (size_t i = 0; i < limit_ && match->end < text.size(); ++i) {
      const Char c = char_at(text, match->end);
      if (!contains(c.code)) break;
      match->end += c.length;
    }
    return true;
  }

 private:
  bool contains(uint32_t code) const {
    if (mask_ != 0) return (char_bits(code) & mask_) != 0;
    return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
      return code >= range.first && code <= range.last;
    });
  }

  uint16_t mask_ = 0;
  size_t limit_ = std::numeric_limits<size_t>::max();
  std::vector<Range> ranges_;
};

class LiteralMatcher : public Matcher {
 public:
  explicit LiteralMatcher(std::string text) : text_(std::move(text)) {}
  bool next(std::string_view text, size_t from, Span* match) const override {
    const size_t at = text_.empty() ? std::string_view::npos : text.find(text_, from);
    if (at == std::string_view::npos) return false;
    *match = {at, at + text_.size()};
    return true;
  }

 private:
  std::string text_;
};

constexpr std::string_view kChatHead = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|)";
constexpr std::string_view kTiktokenHead = R"('(?i:[sdmt]|ll|ve|re)|)";
constexpr std::string_view kChatTail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string chat_pattern(std::string_view digits) {
  return std::string(kChatHead)
      .append(R"([^\r\n\p{L}\p{N}]?\p{L}+|)")
      .append(digits)
      .append(kChatTail);
}

std::string case_pattern(std::string_view contraction, std::string_view digits) {
  std::string out =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)";
  out.append(contraction)
      .append(R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)")
      .append(contraction)
      .append("|")
      .append(digits)
      .append(R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
  return out;
}

}  // namespace

std::unique_ptr<Matcher> literal_matcher(std::string text) {
  return std::make_unique<LiteralMatcher>(std::move(text));
}

std::unique_ptr<Matcher> known_matcher(std::string_view pattern) {
  constexpr std::string_view kContraction = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)";
  constexpr std::string_view kOneDigit = R"(\p{N})", kThreeDigits = R"(\p{N}{1,3})";
  if (pattern == kGpt2Pattern) return std::make_unique<Gpt2Matcher>();
  if (pattern == chat_pattern(kOneDigit)) {
    return std::make_unique<ChatMatcher>(ChatPattern{kLetter, 1, false});
  }
  if (pattern == chat_pattern(kThreeDigits) ||
      pattern ==
          std::string(kTiktokenHead) +
              R"([^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)") {
    return std::make_unique<ChatMatcher>(ChatPattern{kLetter, 3, false});
  }
  if (pattern ==
      std::string(kChatHead) +
          R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)") {
    return std::make_unique<ChatMatcher>(ChatPattern{kLetter | kMark, 1, false});
  }
  if (pattern == case_pattern(kContraction, kThreeDigits)) {
    return std::make_unique<CaseMatcher>(3, Contractions::kAnyCase);
  }
  if (pattern == case_pattern("", kOneDigit)) {
    return std::make_unique<CaseMatcher>(1, Contractions::kNone);
  }
  if (pattern ==
          R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)" ||
      pattern ==
          "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}"
          "\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+") {
    return std::make_unique<DeepSeekMatcher>();
  }
  constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  if (pattern == kOneDigit) return std::make_unique<RunMatcher>(kNumber, 1);
  if (pattern == kThreeDigits) return std::make_unique<RunMatcher>(kNumber, 3);
  if (pattern == R"(\p{N}+)") return std::make_unique<RunMatcher>(kNumber, kNoLimit);
  if (pattern == R"(\s+)") return std::make_unique<RunMatcher>(kSpace, kNoLimit);
  if (pattern == "[一-龥぀-ゟ゠-ヿ]+") {
    return std::make_unique<RunMatcher>(
        std::vector<RunMatcher::Range>{{0x4E00, 0x9FA5}, {0x3040, 0x309F}, {0x30A0, 0x30FF}});
  }
  return nullptr;
}

Result<std::unique_ptr<Matcher>> make_matcher(std::string_view pattern) {
  if (auto known = known_matcher(pattern)) return known;
  return regex_matcher(pattern);
}

}  // namespace pelton::text
