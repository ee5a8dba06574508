#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/utf8.h"
#include "text/jinja/unicode.h"

namespace pelton::text::jinja {
namespace {

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out += '\n';
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();  // keep_trailing_newline is off
  return out;
}

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_char(char c) { return is_name_start(c) || is_digit_char(c); }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), rest_(source_) {}

  Result<std::vector<Token>> tokens() {
    while (at_ < source_.size() && error_.empty()) lex_data();
    if (!error_.empty()) {
      return data_loss(fmt::format("line {}: {}", line_, error_));
    }
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  void fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
  }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  bool starts(std::string_view text) const { return rest_.substr(at_).starts_with(text); }
  void advance(size_t bytes) {
    line_ += static_cast<uint32_t>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                              source_.begin() + static_cast<ptrdiff_t>(at_ + bytes),
                                              '\n'));
    at_ += bytes;
  }
  size_t space_end(size_t at) const {
    while (at < source_.size()) {
      size_t next = at;
      uint32_t code = 0;
      decode_utf8(rest_, &next, &code);
      if (!is_space(code)) break;
      at = next;
    }
    return at;
  }

  // Start of the text's trailing white space.
  static size_t trailing_space(std::string_view text) {
    size_t at = text.size();
    while (at > 0) {
      size_t begin = at - 1;
      while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
      size_t next = begin;
      uint32_t code = 0;
      decode_utf8(text, &next, &code);
      if (!is_space(code)) break;
      at = begin;
    }
    return at;
  }

  // The text before a tag, after the white space control that the tag's sign asks for.
  std::string_view control(std::string_view text, char sign, bool variable) const {
    const size_t solid = trailing_space(text);
    if (sign == '-') return text.substr(0, solid);
    if (sign == '+' || variable) return text;
    const size_t newline = text.rfind('\n');
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if ((line_begin > 0 || line_starting_) && solid <= line_begin) {
      return text.substr(0, line_begin);
    }
    return text;
  }

  static char sign_of(char c) { return c == '-' || c == '+' ? c : '\0'; }

  void lex_data() {
    size_t tag = at_;
    while (true) {
      tag = rest_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= source_.size()) {
        push(TokenKind::kData, source_.substr(at_));
        return advance(source_.size() - at_);
      }
      const char c = source_[tag + 1];
      if (c == '%' || c == '{' || c == '#') break;
      ++tag;
    }
    const char type = source_[tag + 1];
    const char sign = sign_of(tag + 2 < source_.size() ? source_[tag + 2] : '\0');
    const std::string_view text = control(rest_.substr(at_, tag - at_), sign, type == '{');
    if (!text.empty()) push(TokenKind::kData, std::string(text));
    advance(tag - at_);
    if (type == '%' && lex_raw(sign)) return;
    advance(sign != '\0' ? 3 : 2);
    line_starting_ = false;
    if (type == '#') return lex_comment();
    push(type == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
    lex_tag(type == '%');
  }

  // Past the end of a tag that closes at `at_`: "-%}" eats white space, "%}" one newline when
  // blocks trim.
  void close_tag(char sign, bool block) {
    advance(sign != '\0' ? 3 : 2);
    size_t end = at_;
    if (sign == '-') {
      end = space_end(at_);
    } else if (sign == '\0' && block && peek() == '\n') {
      ++end;
    }
    advance(end - at_);
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  // True at "{% raw %}", whose body becomes data.
  bool lex_raw(char sign) {
    size_t end = space_end(at_ + 2 + (sign != '\0' ? 1 : 0));
    if (!rest_.substr(end).starts_with("raw")) return false;
    end = space_end(end + 3);
    const bool strip = rest_.substr(end).starts_with("-%}");
    if (!strip && !rest_.substr(end).starts_with("%}")) return false;
    end += strip ? 3 : 2;
    advance((strip ? space_end(end) : end) - at_);
    // lstrip_blocks looks at whether the text before endraw starts a line.
    line_starting_ = source_[at_ - 1] == '\n';
    size_t tag = at_;
    while ((tag = rest_.find("{%", tag)) != std::string_view::npos) {
      const char end_sign = sign_of(tag + 2 < source_.size() ? source_[tag + 2] : '\0');
      size_t word = space_end(tag + 2 + (end_sign != '\0' ? 1 : 0));
      if (rest_.substr(word).starts_with("endraw")) {
        word = space_end(word + 6);
        const char close_sign = sign_of(word < source_.size() ? source_[word] : '\0');
        if (rest_.substr(word + (close_sign != '\0' ? 1 : 0)).starts_with("%}")) {
          const std::string_view text = control(rest_.substr(at_, tag - at_), end_sign, false);
          if (!text.empty()) push(TokenKind::kData, std::string(text));
          advance(word - at_);
          close_tag(close_sign, true);
          return true;
        }
      }
      ++tag;
    }
    fail("Missing end of raw directive");
    return true;
  }

  void lex_comment() {
    const size_t end = rest_.find("#}", at_);
    if (end == std::string_view::npos) return fail("Missing end of comment tag");
    const char sign = end > at_ ? sign_of(source_[end - 1]) : '\0';
    advance(end - at_ - (sign != '\0' ? 1 : 0));
    close_tag(sign, true);
  }

  void lex_tag(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    while (error_.empty()) {
      if (at_ >= source_.size()) return;  // the parser says what it waited for
      const char sign = sign_of(peek());
      // A variable tag knows no "+" at its end.
      const bool signed_end = sign != '\0' && (block || sign == '-');
      if (open_.empty() &&
          (starts(close) || (signed_end && rest_.substr(at_ + 1).starts_with(close)))) {
        push(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
        return close_tag(starts(close) ? '\0' : sign, block);
      }
      const size_t space = space_end(at_);
      if (space > at_) {
        advance(space - at_);
      } else {
        lex_token();
      }
    }
  }

  void lex_token() {
    const char c = peek();
    if (is_digit_char(c)) return lex_number();
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < source_.size() && is_name_char(source_[end])) ++end;
      push(TokenKind::kName, source_.substr(at_, end - at_));
      return advance(end - at_);
    }
    if (c == '"' || c == '\'') return lex_string(c);
    lex_operator();
  }

  // Digits with single underscores between them.
  size_t digits_end(size_t at) const {
    while (at < source_.size() &&
           (is_digit_char(source_[at]) ||
            (source_[at] == '_' && at + 1 < source_.size() && is_digit_char(source_[at + 1])))) {
      ++at;
    }
    return at;
  }

  void lex_number() {
    const char kind = static_cast<char>(peek(1) | 0x20);
    if (peek() == '0' && (kind == 'x' || kind == 'o' || kind == 'b')) return lex_radix(kind);
    size_t end = digits_end(at_);
    bool is_float = false;
    // "1.2" is a float except after a dot, where it is an item of an item.
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot && end + 1 < source_.size() && source_[end] == '.' &&
        is_digit_char(source_[end + 1])) {
      is_float = true;
      end = digits_end(end + 1);
    }
    if (!after_dot && end < source_.size() && (source_[end] | 0x20) == 'e') {
      size_t exponent = end + 1;
      if (exponent < source_.size() && sign_of(source_[exponent]) != '\0') ++exponent;
      if (exponent < source_.size() && is_digit_char(source_[exponent])) {
        is_float = true;
        end = digits_end(exponent);
      }
    }
    std::string digits = source_.substr(at_, end - at_);
    std::erase(digits, '_');
    Token token{is_float ? TokenKind::kFloat : TokenKind::kInteger, line_, digits};
    const char* last = digits.data() + digits.size();
    if (is_float) {
      const auto read = std::from_chars(digits.data(), last, token.number);
      if (read.ec != std::errc()) return fail(fmt::format("number {} is out of range", digits));
    } else {
      const auto read = std::from_chars(digits.data(), last, token.integer);
      if (read.ec != std::errc())
        return fail(fmt::format("integer {} does not fit 64 bits", digits));
    }
    tokens_.push_back(std::move(token));
    advance(end - at_);
  }

  void lex_radix(char kind) {
    const int radix = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
    size_t end = at_ + 2;
    while (end < source_.size() && (is_name_char(source_[end]))) ++end;
    std::string digits = source_.substr(at_ + 2, end - at_ - 2);
    std::erase(digits, '_');
    Token token{TokenKind::kInteger, line_, digits};
    const auto read =
        std::from_chars(digits.data(), digits.data() + digits.size(), token.integer, radix);
    if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) {
      return fail("invalid integer");
    }
    tokens_.push_back(std::move(token));
    advance(end - at_);
  }

  void lex_string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return fail("a string is not closed");
    const auto text = unescape(rest_.substr(at_ + 1, end - at_ - 1));
    if (!text) return fail("invalid escape in a string");
    push(TokenKind::kString, *text);
    advance(end + 1 - at_);
  }

  // Python's escapes; an unknown one stays as it is written.
  static std::optional<std::string> unescape(std::string_view raw) {
    std::string out;
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\' || i + 1 >= raw.size()) {
        out += raw[i];
        continue;
      }
      const char c = raw[++i];
      constexpr std::string_view kFrom = "abfnrtv\\'\"";
      constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t at = kFrom.find(c); at != std::string_view::npos) {
        out += kTo[at];
      } else if (c == '\n') {
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        const auto code = read_code(raw.substr(i + 1, digits), digits, 16);
        if (!code) return std::nullopt;
        append_utf8(*code, &out);
        i += digits;
      } else if (c >= '0' && c <= '7') {
        size_t digits = 1;
        while (digits < 3 && i + digits < raw.size() && raw[i + digits] >= '0' &&
               raw[i + digits] <= '7') {
          ++digits;
        }
        append_utf8(*read_code(raw.substr(i, digits), digits, 8), &out);
        i += digits - 1;
      } else if (c == 'N') {
        return std::nullopt;
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  static std::optional<uint32_t> read_code(std::string_view digits, size_t count, int radix) {
    uint32_t code = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), code, radix);
    if (digits.size() != count || read.ptr != digits.data() + count || read.ec != std::errc() ||
        code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      return std::nullopt;
    }
    return code;
  }

  void lex_operator() {
    constexpr std::array<std::string_view, 25> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    for (std::string_view op : kOperators) {
      if (!starts(op)) continue;
      if (op == "(" || op == "[" || op == "{") {
        open_.push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
      } else if (op == ")" || op == "]" || op == "}") {
        if (open_.empty()) return fail(fmt::format("unexpected '{}'", op));
        if (open_.back() != op[0]) {
          return fail(fmt::format("unexpected '{}', expected '{}'", op, open_.back()));
        }
        open_.pop_back();
      }
      push(TokenKind::kOperator, std::string(op));
      return advance(op.size());
    }
    size_t end = at_;
    uint32_t code = 0;
    decode_utf8(rest_, &end, &code);
    fail(fmt::format("unexpected char '{}'", source_.substr(at_, end - at_)));
  }

  const std::string source_;
  const std::string_view rest_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<char> open_;
  std::vector<Token> tokens_;
  std::string error_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  if (!is_valid_utf8(source)) return data_loss("line 1: the template is not valid UTF-8");
  return Lexer(normalize_newlines(source)).tokens();
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "template text";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kEnd:
      return "end of template";
    default:
      return fmt::format("'{}'", token.text.substr(0, 60));
  }
}

}  // namespace pelton::text::jinja
