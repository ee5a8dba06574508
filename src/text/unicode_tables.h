// Generated character data (tools/dev/unicode_tables.py); use text/unicode.h.
#pragma once

#include <cstdint>
#include <span>

namespace pelton::text::unicode_tables {

struct Mapping {
  uint32_t code;
  uint16_t offset;  // into kPool
  uint16_t length;
};
struct Composition {
  uint32_t first, second, composed;
};
struct CombiningRun {
  uint32_t begin, end;  // inclusive
  uint8_t combining_class;
};

// Property bits of code point c: kBlocks[kBlockIndex[c / 128] * 128 + c % 128].
extern const uint16_t kBlockIndex[8704];
extern const uint16_t kBlocks[];
// Sorted by code point. Full (not stepwise) decompositions, Hangul syllables left out;
// kCompatibility holds only what differs from kCanonical.
extern const std::span<const Mapping> kCanonical, kCompatibility, kLowercase;
extern const uint32_t kPool[];
extern const std::span<const Composition> kCompositions;
extern const std::span<const CombiningRun> kCombining;

}  // namespace pelton::text::unicode_tables
