#include "server/http_head.h"

#include <algorithm>
#include <charconv>

namespace pelton::server {
namespace {

bool is_token_char(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kMarks.find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view trim(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

bool is_value(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto u = static_cast<unsigned char>(c);
    return c == '\t' || (u >= 0x20 && u != 0x7F);
  });
}

// Whether a comma-separated list holds `item` (lower case).
bool lists(std::string_view text, std::string_view item) {
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (lower(trim(text.substr(0, comma))) == item) return true;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return false;
}

ParsedHead refuse(int status, const char* reason) { return {.status = status, .reason = reason}; }

ParsedHead read_request_line(std::string_view line, const HttpLimits& limits) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last)
    return refuse(400, "the request line is malformed");
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(method) || method.size() > 32) return refuse(400, "the method is malformed");
  if (target.size() > limits.target_bytes) return refuse(414, "the request target is too long");
  if (version.substr(0, 5) != "HTTP/") return refuse(400, "the request line is malformed");
  if (version != "HTTP/1.1" && version != "HTTP/1.0")
    return refuse(505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
  const bool plain = std::all_of(target.begin(), target.end(), [](char c) {
    const auto u = static_cast<unsigned char>(c);
    return u > 0x20 && u < 0x7F;
  });
  if (!plain || target.empty() || (target.front() != '/' && target != "*"))
    return refuse(400, "the request target is malformed");
  ParsedHead parsed;
  parsed.head.method = method;
  const size_t query = std::min(target.find('?'), target.size());
  parsed.head.path = target.substr(0, query);
  if (query < target.size()) parsed.head.query = target.substr(query + 1);
  parsed.head.minor_version = version.back() == '1' ? 1 : 0;
  parsed.head.keep_alive = parsed.head.minor_version == 1;
  return parsed;
}

// What a header means for the framing of the message; nullptr when it may stand.
const char* take_framing(const HttpHeader& header, HttpHead* head, bool* host) {
  if (header.name == "host") {
    if (*host) return "Host stands twice";
    *host = true;
  } else if (header.name == "content-length") {
    uint64_t length = 0;
    const char* end = header.value.data() + header.value.size();
    const auto [stop, error] = std::from_chars(header.value.data(), end, length);
    if (head->content_length) return "Content-Length stands twice";
    if (error != std::errc() || stop != end || header.value.empty())
      return "Content-Length is not a number";
    head->content_length = length;
  } else if (header.name == "transfer-encoding") {
    if (head->chunked) return "Transfer-Encoding stands twice";
    if (lower(header.value) != "chunked") return "Transfer-Encoding must be chunked";
    head->chunked = true;
  } else if (header.name == "connection") {
    if (lists(header.value, "close")) head->keep_alive = false;
    if (head->minor_version == 0 && lists(header.value, "keep-alive")) head->keep_alive = true;
  } else if (header.name == "expect") {
    if (lower(header.value) != "100-continue") return "Expect must be 100-continue";
    head->expects_continue = true;
  }
  return nullptr;
}

}  // namespace

std::string_view reason_phrase(int status) {
  constexpr std::pair<int, std::string_view> kPhrases[] = {
      {100, "Continue"},
      {200, "OK"},
      {204, "No Content"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {413, "Content Too Large"},
      {414, "URI Too Long"},
      {415, "Unsupported Media Type"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {503, "Service Unavailable"},
      {505, "HTTP Version Not Supported"},
  };
  for (const auto& [code, phrase] : kPhrases) {
    if (code == status) return phrase;
  }
  return "Unknown";
}

ParsedHead parse_head(std::string_view bytes, const HttpLimits& limits) {
  if (bytes.size() > limits.header_bytes) return refuse(431, "the headers are too large");
  ParsedHead parsed;
  bool first = true;
  bool host = false;
  while (true) {
    const size_t end = bytes.find("\r\n");
    if (end == std::string_view::npos) return refuse(400, "a line does not end in CRLF");
    const std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(end + 2);
    if (first) {
      first = false;
      parsed = read_request_line(line, limits);
      if (parsed.status != 0) return parsed;
      continue;
    }
    if (line.empty()) break;
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
      return refuse(400, "a header line is malformed");
    HttpHeader header{lower(line.substr(0, colon)), std::string(trim(line.substr(colon + 1)))};
    if (!is_value(header.value)) return refuse(400, "a header holds control characters");
    if (parsed.head.headers.size() >= limits.header_count)
      return refuse(431, "there are too many headers");
    if (const char* reason = take_framing(header, &parsed.head, &host)) return refuse(400, reason);
    parsed.head.headers.push_back(std::move(header));
  }
  if (!bytes.empty()) return refuse(400, "a line does not end in CRLF");
  if (parsed.head.minor_version == 1 && !host) return refuse(400, "Host is missing");
  if (parsed.head.chunked && (parsed.head.content_length || parsed.head.minor_version == 0))
    return refuse(400, "Transfer-Encoding and Content-Length contradict each other");
  return parsed;
}

}  // namespace pelton::server
