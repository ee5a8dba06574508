#include "text/unicode.h"

#include <algorithm>
#include <vector>

#include "base/utf8.h"

namespace pelton::text {
namespace {

using unicode_tables::Composition;
using unicode_tables::Mapping;

constexpr uint32_t kHangulBase = 0xAC00, kLeadBase = 0x1100, kVowelBase = 0x1161,
                   kTrailBase = 0x11A7;
constexpr uint32_t kLeads = 19, kVowels = 21, kTrails = 28, kSyllables = kLeads * kVowels * kTrails;

const Mapping* find(std::span<const Mapping> table, uint32_t code) {
  const auto it =
      std::lower_bound(table.begin(), table.end(), code,
                       [](const Mapping& entry, uint32_t value) { return entry.code < value; });
  return it != table.end() && it->code == code ? &*it : nullptr;
}

struct Decomposed {
  uint32_t code;
  uint8_t combining;
};

void push(uint32_t code, std::vector<Decomposed>* out) {
  out->push_back({code, combining_class(code)});
}

void decompose(uint32_t code, bool compatibility, std::vector<Decomposed>* out) {
  if (code < 0xA0) return out->push_back({code, 0});
  if (code - kHangulBase < kSyllables) {
    const uint32_t index = code - kHangulBase;
    push(kLeadBase + index / (kVowels * kTrails), out);
    push(kVowelBase + index % (kVowels * kTrails) / kTrails, out);
    if (index % kTrails != 0) push(kTrailBase + index % kTrails, out);
    return;
  }
  const Mapping* mapping = compatibility ? find(unicode_tables::kCompatibility, code) : nullptr;
  if (mapping == nullptr) mapping = find(unicode_tables::kCanonical, code);
  if (mapping == nullptr) return push(code, out);
  for (uint32_t i = 0; i < mapping->length; ++i) {
    push(unicode_tables::kPool[mapping->offset + i], out);
  }
}

// Each run of combining marks sorted by class, equal classes in text order.
void reorder(std::vector<Decomposed>* chars) {
  const auto starter = [](const Decomposed& c) { return c.combining == 0; };
  auto at = chars->begin();
  while (at != chars->end()) {
    const auto begin = std::find_if_not(at, chars->end(), starter);
    const auto end = std::find_if(begin, chars->end(), starter);
    std::stable_sort(begin, end, [](const Decomposed& a, const Decomposed& b) {
      return a.combining < b.combining;
    });
    at = end;
  }
}

// The composed character of a pair, or 0.
uint32_t compose_pair(uint32_t first, uint32_t second) {
  if (first - kLeadBase < kLeads && second - kVowelBase < kVowels) {
    return kHangulBase + ((first - kLeadBase) * kVowels + (second - kVowelBase)) * kTrails;
  }
  if (first - kHangulBase < kSyllables && (first - kHangulBase) % kTrails == 0 &&
      second > kTrailBase && second < kTrailBase + kTrails) {
    return first + (second - kTrailBase);
  }
  const auto& table = unicode_tables::kCompositions;
  const auto it = std::lower_bound(table.begin(), table.end(), std::pair(first, second),
                                   [](const Composition& entry, const auto& key) {
                                     return std::pair(entry.first, entry.second) < key;
                                   });
  const bool found = it != table.end() && it->first == first && it->second == second;
  return found ? it->composed : 0;
}

void compose(std::vector<Decomposed>* chars) {
  size_t out = 0;
  size_t starter = SIZE_MAX;  // index in the output of the last starter
  int last_class = -1;        // class of what was last kept after it, -1 for nothing
  for (const Decomposed& c : *chars) {
    if (starter != SIZE_MAX && last_class < c.combining) {
      const uint32_t composed = compose_pair((*chars)[starter].code, c.code);
      if (composed != 0) {
        (*chars)[starter].code = composed;
        continue;
      }
    }
    if (c.combining == 0) {
      starter = out;
      last_class = -1;
    } else {
      last_class = c.combining;
    }
    (*chars)[out++] = c;
  }
  chars->resize(out);
}

}  // namespace

uint8_t combining_class(uint32_t code) {
  if (code < 0x300) return 0;
  const auto& runs = unicode_tables::kCombining;
  const auto it = std::lower_bound(runs.begin(), runs.end(), code,
                                   [](const auto& run, uint32_t value) { return run.end < value; });
  return it != runs.end() && it->begin <= code ? it->combining_class : 0;
}

std::string normalize(std::string_view text, NormalForm form) {
  const auto is_ascii = [](char c) { return static_cast<uint8_t>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return std::string(text);
  const bool compatibility = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  std::vector<Decomposed> chars;
  chars.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Char c = char_at(text, pos);
    decompose(c.code, compatibility, &chars);
    pos += c.length;
  }
  reorder(&chars);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) compose(&chars);
  std::string out;
  out.reserve(text.size());
  for (const Decomposed& c : chars) append_utf8(c.code, &out);
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Char c = char_at(text, pos);
    pos += c.length;
    if (c.code < 0x80) {
      out.push_back(static_cast<char>(c.code >= 'A' && c.code <= 'Z' ? c.code + 32 : c.code));
      continue;
    }
    const Mapping* mapping = find(unicode_tables::kLowercase, c.code);
    if (mapping == nullptr) {
      append_utf8(c.code, &out);
      continue;
    }
    for (uint32_t i = 0; i < mapping->length; ++i) {
      append_utf8(unicode_tables::kPool[mapping->offset + i], &out);
    }
  }
  return out;
}

}  // namespace pelton::text
