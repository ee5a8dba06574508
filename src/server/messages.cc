// Messages of a conversation: checked, and brought to the form that chat templates read.
#include <fmt/format.h>

#include <array>

#include "base/quote.h"
#include "server/field_readers.h"

namespace pelton::server {
namespace {

using Outcome = std::optional<ApiError>;

constexpr size_t kMaxMessages = 4096;

Outcome bad(const std::string& path, std::string_view what) {
  return invalid_field("messages", fmt::format("{}: {}", path, what));
}

// Text, or parts of which all are text: joined by line ends, as templates that know only strings
// want them.
Outcome read_content(const JsonValue& value, Json* out) {
  std::string_view text;
  if (value.element().get(text) == simdjson::SUCCESS) {
    *out = std::string(text);
    return std::nullopt;
  }
  simdjson::dom::array array;
  if (value.element().get(array) != simdjson::SUCCESS)
    return bad(value.path(), "must be a string or a list of parts");
  if (array.size() == 0) return bad(value.path(), "must not be an empty list");
  std::string joined;
  size_t index = 0;
  for (const simdjson::dom::element item : array) {
    const JsonValue part(item, fmt::format("{}[{}]", value.path(), index));
    const auto type = part.string("type");
    if (!type.ok()) return bad(part.path(), "must be an object with a type");
    if (*type != "text")
      return bad(part.path(), fmt::format("parts of type {} are not supported", quote(*type, 32)));
    const auto part_text = part.string("text");
    if (!part_text.ok()) return bad(part.path(), "must have a string text");
    if (index++ > 0) joined += '\n';
    joined += *part_text;
  }
  *out = std::move(joined);
  return std::nullopt;
}

Outcome read_tool_calls(const JsonValue& value, Json* out) {
  simdjson::dom::array array;
  if (value.element().get(array) != simdjson::SUCCESS) return bad(value.path(), "must be a list");
  size_t index = 0;
  for (const simdjson::dom::element item : array) {
    const JsonValue call(item, fmt::format("{}[{}]", value.path(), index++));
    const auto function = call.get("function");
    if (!function || !function->string("name").ok())
      return bad(call.path(), "must have a function with a name");
    const auto arguments = function->get("arguments");
    if (arguments && !arguments->is_string() && !arguments->is_object())
      return bad(call.path(), "the function's arguments must be a string");
  }
  *out = to_ordered_json(value);
  return std::nullopt;
}

Outcome read_role(const JsonValue& message, Json* out) {
  const auto role = message.string("role");
  if (!role.ok()) return bad(message.path(), "must have a string role");
  constexpr std::array<std::string_view, 5> kRoles = {"system", "user", "assistant", "tool",
                                                      "developer"};
  if (std::find(kRoles.begin(), kRoles.end(), *role) == kRoles.end()) {
    return bad(message.path(), fmt::format("the role {} is not one of system, developer, user, "
                                           "assistant, tool",
                                           quote(*role, 32)));
  }
  // Templates know developers' words as the system's.
  (*out)["role"] = *role == "developer" ? "system" : std::string(*role);
  return std::nullopt;
}

Outcome read_key(const JsonValue& message, std::string_view key, const JsonValue& value,
                 Json* out) {
  if (key == "role") return std::nullopt;
  if (key == "content") return read_content(value, &(*out)["content"]);
  if (key == "tool_calls") return read_tool_calls(value, &(*out)["tool_calls"]);
  if (key == "name" || key == "tool_call_id" || key == "reasoning_content") {
    if (!value.is_string()) return bad(value.path(), "must be a string");
    (*out)[std::string(key)] = to_ordered_json(value);
    return std::nullopt;
  }
  // What an answer of this API may have held, sent back by its client.
  if (key == "refusal" || key == "annotations" || key == "audio" || key == "function_call") {
    simdjson::dom::array array;
    if (value.element().get(array) == simdjson::SUCCESS && array.size() == 0) return std::nullopt;
    return bad(value.path(), "is not supported");
  }
  return bad(message.path(), fmt::format("unknown field {}", quote(key, 64)));
}

Outcome read_message(const JsonValue& message, Json* out) {
  simdjson::dom::object object;
  if (message.element().get(object) != simdjson::SUCCESS)
    return bad(message.path(), "must be an object");
  if (auto error = read_role(message, out)) return error;
  for (const simdjson::dom::key_value_pair pair : object) {
    if (pair.value.is_null()) continue;
    const JsonValue value(pair.value, fmt::format("{}.{}", message.path(), pair.key));
    if (auto error = read_key(message, pair.key, value, out)) return error;
  }
  if (out->contains("content")) return std::nullopt;
  if ((*out)["role"] != "assistant" || !out->contains("tool_calls"))
    return bad(message.path(), "must have a content");
  (*out)["content"] = "";
  return std::nullopt;
}

}  // namespace

Outcome read_messages(const JsonValue& value, ApiRequest& request) {
  simdjson::dom::array array;
  if (value.element().get(array) != simdjson::SUCCESS) return bad("messages", "must be a list");
  if (array.size() == 0) return bad("messages", "must not be empty");
  if (array.size() > kMaxMessages)
    return bad("messages", fmt::format("must hold at most {} messages", kMaxMessages));
  request.messages = Json::array();
  for (const simdjson::dom::element item : array) {
    const JsonValue message(item, fmt::format("messages[{}]", request.messages.size()));
    Json out = Json::object();
    if (auto error = read_message(message, &out)) return error;
    request.messages.push_back(std::move(out));
  }
  return std::nullopt;
}

}  // namespace pelton::server
