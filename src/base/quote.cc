#include "base/quote.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace pelton {

std::string quote(std::string_view text, size_t max_bytes) {
  std::string out = "'";
  size_t pos = 0;
  while (pos < text.size() && pos < max_bytes) {
    const size_t begin = pos;
    uint32_t code = 0;
    const bool valid = decode_utf8(text, &pos, &code);
    const std::string_view bytes = text.substr(begin, pos - begin);
    const bool control =
        code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029;
    if (valid && !control) {
      out += bytes;
      continue;
    }
    for (char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  if (pos < text.size()) out += "...";
  out += "'";
  return out;
}

}  // namespace pelton
