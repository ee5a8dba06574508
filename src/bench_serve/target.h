// Where requests go and what stands in them.
#pragma once

#include <string>
#include <string_view>

#include "base/json_tree.h"
#include "base/result.h"
#include "bench_serve/workload.h"

namespace pelton::bench_serve {

struct Target {
  std::string host;
  std::string port;
  std::string base;     // path before /v1, without a slash at its end
  std::string api_key;  // empty = none is sent
  bool https = false;
  std::string ca_file;    // PEM: whose certificates are trusted; empty = those the system trusts
  bool insecure = false;  // whatever certificate the server shows
};

// "http://host:port/base" or "https://host:port/base", with or without "/v1" at the end; without a
// scheme it is http. IPv6 hosts stand in brackets.
Result<Target> parse_url(std::string_view url);

// The first word of a key file, as the server reads them. The error never shows it.
Result<std::string> parse_api_key(std::string_view text);

struct BodyOptions {
  bool chat = false;
  std::string model = {};  // empty = not sent
  bool ignore_eos = false;
  double temperature = 0;
  Json extra = {};  // an object whose members are put into every request; null = none
};

// "/v1/completions" or "/v1/chat/completions", after the target's base.
std::string route(const Target& target, bool chat);
// The JSON text of a streaming request.
std::string request_body(const Prompt& prompt, const BodyOptions& options);

}  // namespace pelton::bench_serve
