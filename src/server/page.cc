#include "server/page.h"

#include <string>

namespace pelton::server {
namespace {

// Nothing inline, nothing evaluated, nothing from elsewhere, no form that leaves, no frame around
// it, and no string of a script's becomes markup (trusted types without a policy).
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

}  // namespace

std::optional<HttpResponse> page_response(std::string_view path) {
  for (const PageFile& file : page_files()) {
    if (file.path != path) continue;
    HttpResponse response{.content_type = std::string(file.type),
                          .body = std::string(file.content)};
    response.headers = {{"Content-Security-Policy", std::string(kPolicy)},
                        {"X-Content-Type-Options", "nosniff"},
                        {"X-Frame-Options", "DENY"},
                        {"Referrer-Policy", "no-referrer"},
                        {"Cross-Origin-Opener-Policy", "same-origin"},
                        {"Cross-Origin-Resource-Policy", "same-origin"},
                        {"Permissions-Policy", "camera=(), geolocation=(), microphone=()"},
                        {"Cache-Control", "no-cache"}};
    return response;
  }
  return std::nullopt;
}

}  // namespace pelton::server
