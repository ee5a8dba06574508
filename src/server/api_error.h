// What a client is told when its request fails. Texts name fields and limits, never paths, keys or
// what a prompt held.
#pragma once

#include <string>
#include <string_view>

#include "pelton/status.h"
#include "server/http_types.h"

namespace pelton::server {

// Whose clients read the error.
enum class ErrorStyle { kOpenAi, kAnthropic };
// What the clients of a route expect.
ErrorStyle error_style(std::string_view path);

struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string code = {};   // "" = null
  std::string param = {};  // the field; "" = null
  std::string message = {};
  int retry_after = 0;  // seconds; 0 = no such header

  // {"error": {"message", "type", "param", "code"}}, or
  // {"type": "error", "error": {"type", "message"}}
  std::string json(ErrorStyle style = ErrorStyle::kOpenAi) const;
  HttpResponse response(ErrorStyle style = ErrorStyle::kOpenAi) const;
};

ApiError invalid_field(std::string_view param, std::string message);
ApiError unsupported_field(std::string_view param, std::string message);
// 503 with Retry-After, or 429 when it is the client's own share that is used up.
ApiError overloaded(int status, std::string message, int retry_after);
// `param`: the field that is to blame when the status does not begin with one's name.
ApiError from_status(const Status& status, std::string_view param);
// For statuses that the server makes before a request is understood.
ApiError http_error(int status, std::string_view message);

}  // namespace pelton::server
