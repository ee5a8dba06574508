// Character properties and normal forms, equal to those of the reference tokenizer library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/unicode_tables.h"

namespace pelton::text {

// Property bits. The order is that of the generator.
enum CharBits : uint16_t {
  kLetter = 1 << 0,
  kNumber = 1 << 1,
  kMark = 1 << 2,
  kSpace = 1 << 3,
  kPunctuation = 1 << 4,  // general category P
  kSymbol = 1 << 5,       // general category S
  kUpper = 1 << 6,        // Lu or Lt
  kLower = 1 << 7,        // Ll
  kDecimal = 1 << 8,
  kHan = 1 << 9,
  kWord = 1 << 10,         // \w
  kPunct = 1 << 11,        // what the Punctuation pre-tokenizer cuts off
  kNumeric = 1 << 12,      // what the Digits pre-tokenizer cuts off
  kAccent = 1 << 13,       // what StripAccents removes
  kBertControl = 1 << 14,  // what BertNormalizer's clean_text removes
  kNonSpacing = 1 << 15,   // what its strip_accents removes
};

inline uint16_t char_bits(uint32_t code) {
  if (code >= 0x110000) return 0;
  return unicode_tables::kBlocks[unicode_tables::kBlockIndex[code >> 7] * 128 + (code & 127)];
}

struct Char {
  uint32_t code;
  uint32_t length;  // bytes
};

// The character at text[pos]; text is valid UTF-8 and pos the start of a character.
inline Char char_at(std::string_view text, size_t pos) {
  const auto at = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t first = at(pos);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (at(pos + 1) & 0x3F), 2};
  if (first < 0xF0) {
    return {(first & 0x0F) << 12 | (at(pos + 1) & 0x3F) << 6 | (at(pos + 2) & 0x3F), 3};
  }
  return {(first & 0x07) << 18 | (at(pos + 1) & 0x3F) << 12 | (at(pos + 2) & 0x3F) << 6 |
              (at(pos + 3) & 0x3F),
          4};
}

// The character that ends before text[pos], pos > 0; same conditions.
inline Char char_before(std::string_view text, size_t pos) {
  size_t begin = pos - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return char_at(text, begin);
}

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` is valid UTF-8.
std::string normalize(std::string_view text, NormalForm form);
std::string lowercase(std::string_view text);
uint8_t combining_class(uint32_t code);

}  // namespace pelton::text
