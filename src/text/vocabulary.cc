#include "text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "text/unicode.h"

namespace pelton::text {
namespace {

struct Alphabet {
  std::array<uint32_t, 256> chars;
  std::array<int16_t, 512> bytes;
};

// Printable Latin-1 characters stand for themselves, the other bytes take U+0100 upwards.
const Alphabet& alphabet() {
  static const Alphabet table = [] {
    Alphabet out;
    out.bytes.fill(-1);
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      out.chars[b] = printable ? b : next++;
      out.bytes[out.chars[b]] = static_cast<int16_t>(b);
    }
    return out;
  }();
  return table;
}

}  // namespace

Status Vocabulary::add(std::string piece, int64_t id) {
  if (id < 0 || id >= kMaxVocabulary) {
    return data_loss(fmt::format("token id {} is outside [0, {})", id, kMaxVocabulary));
  }
  if (piece.size() > kMaxTokenBytes) {
    return data_loss(fmt::format("token {} is longer than {} bytes", id, kMaxTokenBytes));
  }
  longest_ = std::max(longest_, piece.size());
  if (static_cast<size_t>(id) >= pieces_.size()) {
    pieces_.resize(id + 1);
    present_.resize(id + 1, false);
  }
  if (present_[id]) return data_loss(fmt::format("two tokens have the id {}", id));
  pieces_[id] = std::move(piece);
  present_[id] = true;
  order_.push_back(static_cast<int32_t>(id));
  return {};
}

void Vocabulary::finish() {
  index_ = StringIndex(order_.size());
  for (const int32_t id : order_) index_.insert(pieces_[id], id);
  order_ = {};
}

std::optional<uint8_t> parse_byte_token(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  uint32_t value = 0;
  for (const char c : piece.substr(3, 2)) {
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<uint32_t>(c - '0');
    } else if (c >= 'A' && c <= 'F') {
      value = value * 16 + static_cast<uint32_t>(c - 'A') + 10;
    } else if (c >= 'a' && c <= 'f') {
      value = value * 16 + static_cast<uint32_t>(c - 'a') + 10;
    } else {
      return std::nullopt;
    }
  }
  return static_cast<uint8_t>(value);
}

std::string byte_token(uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

uint32_t byte_to_char(uint8_t byte) { return alphabet().chars[byte]; }
int char_to_byte(uint32_t code) { return code < 512 ? alphabet().bytes[code] : -1; }

std::string bytes_to_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) append_utf8(byte_to_char(static_cast<uint8_t>(c)), &out);
  return out;
}

std::optional<std::string> alphabet_to_bytes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Char c = char_at(text, pos);
    const int byte = char_to_byte(c.code);
    if (byte < 0) return std::nullopt;
    out.push_back(static_cast<char>(byte));
    pos += c.length;
  }
  return out;
}

}  // namespace pelton::text
