// Tools that a request offers, and how embeddings are to come.
#include "server/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/quote.h"
#include "server/field_readers.h"

namespace pelton::server {
namespace {

using Outcome = std::optional<ApiError>;

Outcome bad(const JsonValue& value, std::string_view what) {
  return invalid_field(value.path(), fmt::format("{}: {}", value.path(), what));
}

Outcome read_choice_of(const JsonValue& value, std::string_view first, std::string_view second,
                       std::string_view* out) {
  if (value.element().get(*out) == simdjson::SUCCESS && (*out == first || *out == second))
    return std::nullopt;
  return bad(value, fmt::format("must be \"{}\" or \"{}\"", first, second));
}

}  // namespace

bool is_tool_name(std::string_view name) {
  constexpr size_t kMaxToolName = 64;
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= kMaxToolName &&
         std::all_of(name.begin(), name.end(), fits);
}

Outcome refuse_strict(const JsonValue& tool) {
  const auto strict = tool.boolean("strict", false);
  if (!strict.ok()) return bad(tool, "strict must be true or false");
  if (!*strict) return std::nullopt;
  return unsupported_field("tools", fmt::format("{}: strict is not supported: this server does not "
                                                "constrain output yet",
                                                tool.path()));
}

Outcome keep_tools(const JsonValue& field, Json tools, ApiRequest& request) {
  if (tools.empty()) return std::nullopt;
  if (const size_t bytes = tools.dump().size(); bytes > kMaxToolBytes)
    return bad(field, fmt::format("must have at most {} bytes, not {}", kMaxToolBytes, bytes));
  request.tools = std::move(tools);
  return std::nullopt;
}

Outcome read_tools(const JsonValue& value, ApiRequest& request) {
  simdjson::dom::array array;
  if (value.element().get(array) != simdjson::SUCCESS) return bad(value, "must be a list");
  if (array.size() > kMaxTools)
    return bad(value, fmt::format("must hold at most {} tools", kMaxTools));
  size_t index = 0;
  for (const simdjson::dom::element item : array) {
    const JsonValue tool(item, fmt::format("{}[{}]", value.path(), index++));
    const auto type = tool.string("type");
    if (!type.ok()) return bad(tool, "must be an object with a type");
    if (*type != "function")
      return unsupported_field(value.path(), fmt::format("{}: only functions are supported, not {}",
                                                         tool.path(), quote(*type, 32)));
    const auto function = tool.get("function");
    if (!function || !function->is_object()) return bad(tool, "must have a function");
    const auto name = function->string("name");
    if (!name.ok() || !is_tool_name(*name))
      return bad(*function, "must have a name of 1 to 64 letters, digits, _, - and .");
    if (auto error = refuse_strict(*function)) return error;
    const auto description = function->get("description");
    if (description && !description->is_string()) return bad(*description, "must be a string");
    const auto parameters = function->get("parameters");
    if (parameters && !parameters->is_object()) return bad(*parameters, "must be an object");
  }
  return keep_tools(value, to_ordered_json(value), request);
}

Outcome read_tool_choice(const JsonValue& value, ApiRequest& request) {
  std::string_view choice;
  const bool text = value.element().get(choice) == simdjson::SUCCESS;
  if (text && choice == "auto") return std::nullopt;
  if (text && choice == "none") {
    request.tool_choice_none = true;
    return std::nullopt;
  }
  if (text ? choice == "required" : value.is_object())
    return unsupported_field("tool_choice",
                             "tool_choice: only none and auto are supported: this server does not "
                             "constrain output yet");
  return bad(value, "must be \"none\" or \"auto\"");
}

Outcome read_encoding_format(const JsonValue& value, ApiRequest& request) {
  std::string_view text;
  if (auto error = read_choice_of(value, "float", "base64", &text)) return error;
  request.base64 = text == "base64";
  return std::nullopt;
}

Outcome read_pooling(const JsonValue& value, ApiRequest& request) {
  std::string_view text;
  if (auto error = read_choice_of(value, "last", "mean", &text)) return error;
  request.pooling = text;
  return std::nullopt;
}

}  // namespace pelton::server
