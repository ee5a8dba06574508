// Who may call: keys from a file, the Host and Origin of browsers.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http_types.h"

namespace pelton::server {

// Keys as SHA-256 digests. Comparing takes the same time whichever key matches, or none.
class KeyRing {
 public:
  // A key a line; after blanks an optional weight, its share of tokens relative to others'. Empty
  // lines and lines that begin with # are left out. Errors name the line, never a key.
  static Result<KeyRing> parse(std::string_view text);

  bool empty() const { return keys_.empty(); }
  // The key's tenant, from 1 on; nothing when it is unknown.
  std::optional<int> find(std::string_view key) const;
  const std::vector<double>& weights() const { return weights_; }  // of tenant 1, 2, ...

 private:
  using Digest = std::array<unsigned char, 32>;
  static Digest digest(std::string_view key);

  std::vector<Digest> keys_;
  std::vector<double> weights_;
};

// The key of a request: "Authorization: Bearer KEY" or "x-api-key: KEY"; empty when there is none.
std::string_view presented_key(const HttpHead& head);

// Whether `host`, a Host header, names this machine: localhost, 127.0.0.0/8 or ::1 with any port.
bool is_loopback_host(std::string_view host);
// Host without its port and brackets.
std::string_view host_name(std::string_view host);

}  // namespace pelton::server
