// HTTP as the rest of the server sees it: plain data, no library types.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pelton::server {

struct HttpHeader {
  std::string name;  // lower case in requests
  std::string value;
};

// A body's limit where nobody set one.
inline constexpr size_t kBodyBytes = 8u << 20;

struct HttpLimits {
  size_t header_bytes = 32u << 10;   // request line and all headers; beyond: 431
  size_t header_count = 100;         // beyond: 431
  size_t target_bytes = 8u << 10;    // beyond: 414
  std::optional<size_t> body_bytes;  // beyond: 413; absent: kBodyBytes, or what a service needs
  size_t output_bytes = 256u << 10;  // of a stream whose client does not read; beyond: dropped
  int connections = 4096;            // further ones are closed at once
  std::chrono::milliseconds header_timeout{10'000};  // from the first byte; beyond: 408
  std::chrono::milliseconds body_timeout{60'000};    // beyond: 408
  std::chrono::milliseconds idle_timeout{60'000};    // between requests; beyond: closed
  std::chrono::milliseconds write_timeout{60'000};   // one write without progress; beyond: closed
};

// The head of a request that passed parse_head().
struct HttpHead {
  std::string method;
  std::string path;   // before '?'; percent signs are left as they are
  std::string query;  // after '?'
  int minor_version = 1;
  bool keep_alive = true;
  bool chunked = false;
  bool expects_continue = false;
  std::optional<uint64_t> content_length;
  std::vector<HttpHeader> headers;

  // The first of that (lower-case) name; empty when absent.
  std::string_view header(std::string_view name) const {
    for (const HttpHeader& h : headers) {
      if (h.name == name) return h.value;
    }
    return {};
  }
  bool has_body() const { return chunked || content_length.value_or(0) > 0; }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers = {};  // beside type, length and connection
  std::string body = {};
  bool close = false;  // the connection ends after this response
};

// "OK", "Bad Request", ...
std::string_view reason_phrase(int status);

}  // namespace pelton::server
