// Any bytes as the head of a request: refused, or a head that says the same when it is written out
// plainly and read again.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/access.h"
#include "server/http_head.h"

namespace {

using pelton::server::HttpHead;
using pelton::server::parse_head;
using pelton::server::ParsedHead;

std::string written(const HttpHead& head, bool has_query) {
  std::string out = head.method + " " + head.path;
  if (has_query) out += "?" + head.query;
  out += " HTTP/1." + std::to_string(head.minor_version) + "\r\n";
  for (const auto& header : head.headers) out += header.name + ": " + header.value + "\r\n";
  return out + "\r\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  pelton::server::HttpLimits limits;
  limits.header_bytes = 1u << 16;
  const ParsedHead parsed = parse_head(bytes, limits);
  if (parsed.status != 0) {
    if (parsed.status < 400 || parsed.reason[0] == '\0') std::abort();
    return 0;
  }
  const std::string_view host = parsed.head.header("host");
  (void)pelton::server::is_loopback_host(host);
  (void)pelton::server::presented_key(parsed.head);
  const bool has_query = bytes.substr(0, bytes.find('\r')).find('?') != std::string_view::npos;
  limits.header_bytes = 1u << 20;
  const ParsedHead again = parse_head(written(parsed.head, has_query), limits);
  if (again.status != 0 || again.head.path != parsed.head.path ||
      again.head.query != parsed.head.query ||
      again.head.headers.size() != parsed.head.headers.size() ||
      again.head.content_length != parsed.head.content_length ||
      again.head.chunked != parsed.head.chunked || again.head.keep_alive != parsed.head.keep_alive)
    std::abort();
  return 0;
}
