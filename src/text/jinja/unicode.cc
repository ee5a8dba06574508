#include "text/jinja/unicode.h"

#include <algorithm>
#include <optional>
#include <span>

namespace pelton::text::jinja {
namespace {

struct CaseRun {
  uint32_t first;
  uint32_t last;
  uint32_t step;
  int32_t delta;
};
struct SpecialCase {
  uint32_t code;
  uint32_t mapped[3];
};
struct CodeRange {
  uint32_t first;
  uint32_t last;
};

// clang-format off
#include "text/jinja/unicode_tables.inc"
// clang-format on

bool in_ranges(std::span<const CodeRange> ranges, uint32_t code) {
  const auto it = std::upper_bound(ranges.begin(), ranges.end(), code,
                                   [](uint32_t c, const CodeRange& r) { return c < r.first; });
  return it != ranges.begin() && code <= std::prev(it)->last;
}

std::optional<uint32_t> map_run(std::span<const CaseRun> runs, uint32_t code) {
  auto it = std::upper_bound(runs.begin(), runs.end(), code,
                             [](uint32_t c, const CaseRun& r) { return c < r.first; });
  if (it == runs.begin()) return std::nullopt;
  --it;
  if (code > it->last || (code - it->first) % it->step != 0) return std::nullopt;
  return static_cast<uint32_t>(static_cast<int64_t>(code) + it->delta);
}

const SpecialCase* find_special(std::span<const SpecialCase> list, uint32_t code) {
  const auto it = std::lower_bound(list.begin(), list.end(), code,
                                   [](const SpecialCase& s, uint32_t c) { return s.code < c; });
  return it != list.end() && it->code == code ? &*it : nullptr;
}

uint32_t map_simple(uint32_t code, Case to) {
  if (to == Case::kLower) return map_run(kLowerRuns, code).value_or(code);
  if (to == Case::kTitle) {
    if (const auto title = map_run(kTitleRuns, code)) return *title;
  }
  return map_run(kUpperRuns, code).value_or(code);
}

const SpecialCase* special_case(uint32_t code, Case to) {
  if (to == Case::kLower) return find_special(kLowerSpecial, code);
  if (to == Case::kUpper) return find_special(kUpperSpecial, code);
  if (const SpecialCase* title = find_special(kTitleSpecial, code)) return title;
  // A character with a title mapping of its own does not fall back to its upper expansion.
  return map_run(kTitleRuns, code) ? nullptr : find_special(kUpperSpecial, code);
}

}  // namespace

bool is_space(uint32_t code) {
  if (code < 0x80)
    return code == ' ' || (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x1F);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}
bool is_alpha(uint32_t code) { return in_ranges(kAlpha, code); }
bool is_digit(uint32_t code) { return in_ranges(kDigit, code); }
bool is_decimal(uint32_t code) { return in_ranges(kDecimal, code); }
bool is_numeric(uint32_t code) { return in_ranges(kNumeric, code); }
bool is_lower(uint32_t code) { return in_ranges(kLowerCased, code); }
bool is_upper(uint32_t code) { return in_ranges(kUpperCased, code); }
bool is_printable(uint32_t code) { return !in_ranges(kUnprintable, code); }

void append_case(TextBuilder& out, uint32_t code, Case to, bool from_user) {
  if (const SpecialCase* special = special_case(code, to)) {
    for (uint32_t mapped : special->mapped) {
      if (mapped != 0) out.append_code(mapped, from_user);
    }
    return;
  }
  out.append_code(map_simple(code, to), from_user);
}

}  // namespace pelton::text::jinja
