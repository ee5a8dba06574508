#include "server/api_error.h"

#include <fmt/format.h>

#include "server/json_writer.h"

namespace pelton::server {
namespace {

std::string_view type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string_view anthropic_type(int status) {
  if (status == 413) return "request_too_large";
  if (status >= 500 && status != 503) return "api_error";
  return type_of(status);
}

// "top_p" of "top_p must be in (0, 1], not 3"; empty when the text does not begin with a name.
std::string_view leading_name(std::string_view message) {
  size_t end = 0;
  while (end < message.size() &&
         ((message[end] >= 'a' && message[end] <= 'z') || message[end] == '_' ||
          (end > 0 && message[end] >= '0' && message[end] <= '9')))
    ++end;
  const std::string_view rest = message.substr(end);
  const bool named = rest.substr(0, 1) == ":" || message.substr(0, end).find('_') < end ||
                     rest.substr(0, 6) == " must " || rest.substr(0, 7) == " holds " ||
                     rest.substr(0, 7) == " cannot";
  return named ? message.substr(0, end) : std::string_view();
}

}  // namespace

ErrorStyle error_style(std::string_view path) {
  return path.substr(0, 12) == "/v1/messages" ? ErrorStyle::kAnthropic : ErrorStyle::kOpenAi;
}

std::string ApiError::json(ErrorStyle style) const {
  JsonWriter out;
  if (style == ErrorStyle::kAnthropic) {
    out.begin_object().field("type", "error").key("error").begin_object();
    out.field("type", anthropic_type(status)).field("message", message);
    out.end_object().end_object();
    return out.take();
  }
  out.begin_object().key("error").begin_object().field("message", message).field("type", type);
  out.key("param");
  param.empty() ? out.null() : out.string(param);
  out.key("code");
  code.empty() ? out.null() : out.string(code);
  out.end_object().end_object();
  return out.take();
}

HttpResponse ApiError::response(ErrorStyle style) const {
  HttpResponse response{.status = status, .body = json(style)};
  if (retry_after > 0) response.headers.push_back({"Retry-After", fmt::format("{}", retry_after)});
  if (status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

ApiError invalid_field(std::string_view param, std::string message) {
  return {.code = "invalid_value", .param = std::string(param), .message = std::move(message)};
}

ApiError unsupported_field(std::string_view param, std::string message) {
  return {.code = "unsupported_value", .param = std::string(param), .message = std::move(message)};
}

ApiError overloaded(int status, std::string message, int retry_after) {
  return {.status = status,
          .type = std::string(type_of(status)),
          .code = status == 429 ? "rate_limit_exceeded" : "overloaded",
          .message = std::move(message),
          .retry_after = retry_after};
}

ApiError from_status(const Status& status, std::string_view param) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported: {
      const std::string_view name = leading_name(status.message());
      return invalid_field(name.empty() ? param : name, status.message());
    }
    case StatusCode::kResourceExhausted:
      return overloaded(503, "the server has no room for this request now", 1);
    case StatusCode::kCancelled:
      return overloaded(503, "the request was cancelled", 1);
    default:
      // The cause may hold paths: it is for the log.
      return {.status = 500,
              .type = "server_error",
              .code = "internal_error",
              .message = "the request failed inside the server"};
  }
}

ApiError http_error(int status, std::string_view message) {
  return {.status = status, .type = std::string(type_of(status)), .message = std::string(message)};
}

}  // namespace pelton::server
