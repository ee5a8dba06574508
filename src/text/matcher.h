// Finding the pieces that a tokenizer's regular expression matches, left to right.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::text {

struct Span {
  size_t begin = 0, end = 0;  // bytes
};

class Matcher {
 public:
  virtual ~Matcher() = default;
  // The first match that is not empty and begins at `from` or later. `text` is valid UTF-8 and
  // `from` the start of a character.
  virtual bool next(std::string_view text, size_t from, Span* match) const = 0;
};

// The GPT-2 pattern, which the ByteLevel pre-tokenizer holds.
extern const std::string_view kGpt2Pattern;

// A hand-written matcher, linear in the text, for a pattern that model families use; null for any
// other.
std::unique_ptr<Matcher> known_matcher(std::string_view pattern);
// A PCRE2 program with limits on matching; syntax that the two engines read differently is
// translated or refused.
Result<std::unique_ptr<Matcher>> regex_matcher(std::string_view pattern);
// The first of the two that applies.
Result<std::unique_ptr<Matcher>> make_matcher(std::string_view pattern);
// Occurrences of a plain string.
std::unique_ptr<Matcher> literal_matcher(std::string text);

}  // namespace pelton::text
