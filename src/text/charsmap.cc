#include "text/charsmap.h"

#include <cstring>

#include "base/utf8.h"
#include "text/unicode.h"

namespace pelton::text {
namespace {

// Darts-clone unit: bit 31 with the label tells values from children.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t label(uint32_t unit) { return unit & 0x800000FFu; }
uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

bool extends_cluster(uint32_t code) {
  return (char_bits(code) & kMark) != 0 || code == 0x200D || code == 0x200C || code == 0xFF9E ||
         code == 0xFF9F || (code >= 0x1F3FB && code <= 0x1F3FF);
}

}  // namespace

Result<Charsmap> Charsmap::parse(std::string_view blob) {
  if (blob.size() < 4) return data_loss("precompiled_charsmap is shorter than its header");
  uint32_t trie_bytes;
  std::memcpy(&trie_bytes, blob.data(), 4);
  blob.remove_prefix(4);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > blob.size()) {
    return data_loss("precompiled_charsmap holds less than its trie size says");
  }
  Charsmap map;
  map.units_.resize(trie_bytes / 4);
  std::memcpy(map.units_.data(), blob.data(), trie_bytes);
  map.replacements_ = blob.substr(trie_bytes);
  // Replacements must be text; the zero bytes between them are.
  if (!is_valid_utf8(map.replacements_)) {
    return data_loss("precompiled_charsmap has a replacement that is not UTF-8");
  }
  return map;
}

std::optional<Charsmap::Match> Charsmap::find(std::string_view text, bool longest) const {
  std::optional<Match> best;
  size_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size() || label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if (node >= units_.size()) break;
    if (!has_leaf(unit)) continue;
    const uint32_t at = value(units_[node]);
    if (at >= replacements_.size()) continue;
    const std::string_view rest = std::string_view(replacements_).substr(at);
    // A key or a value inside a character would tear the text.
    const bool whole = i + 1 == text.size() || (static_cast<uint8_t>(text[i + 1]) & 0xC0) != 0x80;
    if (!whole || (!rest.empty() && (static_cast<uint8_t>(rest[0]) & 0xC0) == 0x80)) continue;
    best = Match{i + 1, rest.substr(0, rest.find('\0'))};
    if (!longest) break;
  }
  return best;
}

void Charsmap::apply_to_cluster(std::string_view cluster, std::string* out) const {
  if (cluster.size() < 6) {
    if (const auto match = find(cluster, false)) {
      out->append(match->replacement);
      return;
    }
  }
  for (size_t pos = 0; pos < cluster.size();) {
    const std::string_view one = cluster.substr(pos, char_at(cluster, pos).length);
    const auto match = find(one, false);
    out->append(match ? match->replacement : one);
    pos += one.size();
  }
}

std::string Charsmap::apply(std::string_view text, Mode mode) const {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Char c = char_at(text, pos);
    size_t end = pos + c.length;
    if (mode == Mode::kSentencePiece) {
      const auto match = find(text.substr(pos), true);
      out.append(match ? match->replacement : text.substr(pos, c.length));
      pos += match ? match->length : c.length;
      continue;
    }
    const bool control = c.code < 0x20 || (c.code >= 0x7F && c.code < 0xA0);
    if (c.code == '\r' && end < text.size() && text[end] == '\n') ++end;
    while (!control && end < text.size()) {
      const Char next = char_at(text, end);
      if (!extends_cluster(next.code)) break;
      end += next.length;
    }
    apply_to_cluster(text.substr(pos, end - pos), &out);
    pos = end;
  }
  return out;
}

std::optional<std::string> decode_base64(std::string_view text) {
  const auto digit = [](char c) -> int {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && !text.empty() && text.back() == '=') {
    text.remove_suffix(1);
    ++padding;
  }
  std::string out;
  out.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const int value = digit(c);
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    held += 6;
    if (held >= 8) {
      held -= 8;
      out.push_back(static_cast<char>(bits >> held & 0xFF));
    }
  }
  return out;
}

}  // namespace pelton::text
