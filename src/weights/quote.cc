#include "weights/quote.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace pelton::weights {

std::string quote(std::string_view name) {
  constexpr size_t kLongest = 256;
  std::string out = "'";
  size_t pos = 0;
  while (pos < name.size() && pos < kLongest) {
    const size_t begin = pos;
    uint32_t code = 0;
    const bool valid = decode_utf8(name, &pos, &code);
    const std::string_view bytes = name.substr(begin, pos - begin);
    const bool control =
        code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029;
    if (valid && !control) {
      out += bytes;
      continue;
    }
    for (char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  if (pos < name.size()) out += "...";
  out += "'";
  return out;
}

Status file_error(StatusCode code, std::string_view path, std::string_view reason) {
  return {code, fmt::format("{}: {}", path, reason)};
}

Status tensor_error(StatusCode code, std::string_view path, std::string_view name,
                    std::string_view reason) {
  return {code, fmt::format("{}: tensor {}: {}", path, quote(name), reason)};
}

}  // namespace pelton::weights
