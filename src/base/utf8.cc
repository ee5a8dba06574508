#include "base/utf8.h"

namespace pelton {
namespace {

// Length that the first byte announces (0 = it cannot begin a character) and the range of the
// second byte.
struct Lead {
  int length;
  uint8_t low;
  uint8_t high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Valid bytes of the character that begins at text[pos], and whether it is whole.
struct Scan {
  int valid;
  int length;
};

Scan scan(std::string_view text, size_t pos) {
  const Lead lead = lead_of(static_cast<uint8_t>(text[pos]));
  if (lead.length == 0) return {0, 0};
  int valid = 1;
  while (valid < lead.length && pos + static_cast<size_t>(valid) < text.size()) {
    const auto byte = static_cast<uint8_t>(text[pos + static_cast<size_t>(valid)]);
    const uint8_t low = valid == 1 ? lead.low : 0x80;
    const uint8_t high = valid == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) break;
    ++valid;
  }
  return {valid, lead.length};
}

}  // namespace

bool decode_utf8(std::string_view text, size_t* pos, uint32_t* code) {
  const Scan s = scan(text, *pos);
  if (s.length == 0 || s.valid < s.length) {
    *code = kReplacementChar;
    *pos += static_cast<size_t>(s.valid > 0 ? s.valid : 1);
    return false;
  }
  const auto byte = [&](int i) {
    return static_cast<uint8_t>(text[*pos + static_cast<size_t>(i)]);
  };
  switch (s.length) {
    case 1:
      *code = byte(0);
      break;
    case 2:
      *code = (byte(0) & 0x1Fu) << 6 | (byte(1) & 0x3Fu);
      break;
    case 3:
      *code = (byte(0) & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
      break;
    default:
      *code = (byte(0) & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 |
              (byte(3) & 0x3Fu);
  }
  *pos += static_cast<size_t>(s.length);
  return true;
}

void append_utf8(uint32_t code, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  uint32_t code;
  for (size_t pos = 0; pos < text.size();) {
    if (!decode_utf8(text, &pos, &code)) return false;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  uint32_t code;
  for (size_t pos = 0; pos < text.size();) {
    decode_utf8(text, &pos, &code);
    append_utf8(code, &out);
  }
  return out;
}

size_t incomplete_utf8_suffix(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const Scan s = scan(text, text.size() - back);
    if (s.length == 0) continue;
    return static_cast<size_t>(s.valid) == back && s.valid < s.length ? back : 0;
  }
  return 0;
}

}  // namespace pelton
