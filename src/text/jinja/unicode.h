// Character properties and case mappings as Python's string methods use them.
#pragma once

#include <cstdint>

#include "text/jinja/text.h"

namespace pelton::text::jinja {

// str.isspace(): what strip() and split() remove.
bool is_space(uint32_t code);
bool is_alpha(uint32_t code);
bool is_digit(uint32_t code);
bool is_decimal(uint32_t code);
bool is_numeric(uint32_t code);
bool is_lower(uint32_t code);
bool is_upper(uint32_t code);
bool is_printable(uint32_t code);

enum class Case { kUpper, kLower, kTitle };
// Appends the mapping of one character, which may be several.
void append_case(TextBuilder& out, uint32_t code, Case to, bool from_user);

}  // namespace pelton::text::jinja
