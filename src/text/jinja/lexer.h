// Template source to tokens, as jinja2's lexer cuts it with trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::text::jinja {

enum class TokenKind {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  uint32_t line;
  std::string text;  // data, name, operator; a string after its escapes
  int64_t integer = 0;
  double number = 0;
};

// "line N: ..." on an error.
Result<std::vector<Token>> tokenize(std::string_view source);

// A token as an error message names it.
std::string describe(const Token& token);

}  // namespace pelton::text::jinja
