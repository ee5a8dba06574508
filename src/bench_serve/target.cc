#include "bench_serve/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/quote.h"

namespace pelton::bench_serve {
namespace {

bool take_prefix(std::string_view prefix, std::string_view* text) {
  if (text->substr(0, prefix.size()) != prefix) return false;
  text->remove_prefix(prefix.size());
  return true;
}

bool visible(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7F; });
}

}  // namespace

Result<Target> parse_url(std::string_view url) {
  const auto wrong = [&](const char* what) {
    return invalid_argument("--url: " + quote(url) + " " + what);
  };
  std::string_view rest = url;
  Target target;
  target.https = take_prefix("https://", &rest);
  if (!target.https) take_prefix("http://", &rest);
  if (!visible(rest)) return wrong("holds a space or another character that no URL has");
  const size_t slash = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view authority = rest.substr(0, slash);
  std::string_view path = rest.substr(slash);
  if (path.find_first_of("?#") != std::string_view::npos) return wrong("has a query");
  if (authority.find('@') != std::string_view::npos)
    return wrong("holds a user name; use --api-key-file");
  std::string_view port = target.https ? "443" : "80";
  if (take_prefix("[", &authority)) {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return wrong("lacks a ]");
    target.host = authority.substr(0, close);
    authority.remove_prefix(close + 1);
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    target.host = authority.substr(0, colon);
    authority.remove_prefix(colon);
  }
  if (take_prefix(":", &authority)) {
    port = authority;
  } else if (!authority.empty()) {
    return wrong("is not host:port");
  }
  int number = 0;
  const auto [end, ec] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (ec != std::errc() || end != port.data() + port.size() || number < 1 || number > 65535)
    return wrong("has no port of 1 to 65535");
  if (target.host.empty()) return wrong("names no host");
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  if (path.size() >= 3 && path.substr(path.size() - 3) == "/v1") path.remove_suffix(3);
  target.port = port;
  target.base = path;
  return target;
}

Result<std::string> parse_api_key(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = std::min(text.find_first_not_of(kSpace), text.size());
  text.remove_prefix(first);
  text = text.substr(0, text.find_last_not_of(kSpace) + 1);
  // A key file of the server may hold a weight after the key, and further keys.
  text = text.substr(0, text.find_first_of(kSpace));
  if (text.empty() || !visible(text))
    return invalid_argument("--api-key-file: a key of visible characters is expected");
  return std::string(text);
}

std::string route(const Target& target, bool chat) {
  return target.base + (chat ? "/v1/chat/completions" : "/v1/completions");
}

std::string request_body(const Prompt& prompt, const BodyOptions& options) {
  Json body = Json::object();
  if (!options.model.empty()) body["model"] = options.model;
  if (options.chat) {
    Json message = Json::object();
    message["role"] = "user";
    message["content"] = prompt.text;
    body["messages"] = Json::array({message});
  } else if (!prompt.ids.empty()) {
    body["prompt"] = Json(prompt.ids);
  } else {
    body["prompt"] = prompt.text;
  }
  body["max_tokens"] = prompt.max_tokens;
  body["temperature"] = options.temperature;
  body["stream"] = true;
  body["stream_options"]["include_usage"] = true;
  if (options.ignore_eos) body["ignore_eos"] = true;
  if (options.extra.is_object()) body.update(options.extra);
  return body.dump();
}

}  // namespace pelton::bench_serve
