// UTF-8, strict: no overlong forms, surrogates or values above U+10FFFF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pelton {

constexpr uint32_t kReplacementChar = 0xFFFD;

// Decodes the character at text[*pos], advances *pos past it and returns true. On a malformed
// sequence returns false, sets *code to U+FFFD and advances past its maximal valid prefix (at least
// one byte), as WHATWG and Python do.
bool decode_utf8(std::string_view text, size_t* pos, uint32_t* code);

void append_utf8(uint32_t code, std::string* out);
bool is_valid_utf8(std::string_view text);
// Each maximal malformed part replaced by one U+FFFD.
std::string replace_invalid_utf8(std::string_view text);
// Bytes at the end of `text` that begin a character but do not finish it (0 to 3).
size_t incomplete_utf8_suffix(std::string_view text);

}  // namespace pelton
