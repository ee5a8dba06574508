#include "server/access.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace pelton::server {

KeyRing::Digest KeyRing::digest(std::string_view key) {
  Digest out{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), out.data());
  return out;
}

Result<KeyRing> KeyRing::parse(std::string_view text) {
  KeyRing ring;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    constexpr std::string_view kBlanks = " \t\r";
    const size_t begin = line.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos || line[begin] == '#') continue;
    line = line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin);
    const std::string_view key = line.substr(0, line.find_first_of(kBlanks));
    std::string_view rest = line.substr(key.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
    double weight = 1;
    if (!rest.empty()) {
      const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), weight);
      if (error != std::errc() || stop != rest.data() + rest.size() || !(weight > 0) ||
          !std::isfinite(weight))
        return invalid_argument(
            fmt::format("line {}: what follows the key is not a weight", line_number));
    }
    if (key.size() < 8)
      return invalid_argument(fmt::format("line {}: a key has at least 8 characters", line_number));
    if (ring.find(key))
      return invalid_argument(fmt::format("line {}: the key stands twice", line_number));
    ring.keys_.push_back(digest(key));
    ring.weights_.push_back(weight);
  }
  if (ring.empty()) return invalid_argument("holds no key");
  return ring;
}

std::optional<int> KeyRing::find(std::string_view key) const {
  const Digest wanted = digest(key);
  std::optional<int> found;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (CRYPTO_memcmp(wanted.data(), keys_[i].data(), wanted.size()) == 0)
      found = static_cast<int>(i) + 1;
  }
  return found;
}

std::string_view presented_key(const HttpHead& head) {
  const std::string_view authorization = head.header("authorization");
  constexpr std::string_view kBearer = "bearer ";
  const bool bearer =
      authorization.size() > kBearer.size() &&
      std::equal(kBearer.begin(), kBearer.end(), authorization.begin(),
                 [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
  if (bearer) return authorization.substr(kBearer.size());
  return head.header("x-api-key");
}

std::string_view host_name(std::string_view host) {
  if (!host.empty() && host.front() == '[')
    return host.substr(1, std::min(host.find(']'), host.size()) - 1);
  return host.substr(0, host.rfind(':'));
}

bool is_loopback_host(std::string_view host) {
  const std::string_view name = host_name(host);
  if (name == "localhost" || name == "::1") return true;
  if (name.substr(0, 4) != "127.") return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}

}  // namespace pelton::server
