// Conversations of Anthropic's API, brought to the form that chat templates read.
#include <fmt/format.h>

#include <utility>

#include "base/quote.h"
#include "server/field_readers.h"
#include "server/tool_fields.h"

namespace pelton::server {
namespace {

using Outcome = std::optional<ApiError>;

constexpr size_t kMaxTurns = 4096;

Outcome bad(const JsonValue& value, std::string_view what) {
  const std::string field = value.path().substr(0, value.path().find_first_of("[."));
  return invalid_field(field, fmt::format("{}: {}", value.path(), what));
}

template <typename Take>
Outcome each(const JsonValue& value, Take take) {
  simdjson::dom::array array;
  if (value.element().get(array) != simdjson::SUCCESS) return bad(value, "must be a list");
  size_t index = 0;
  for (const simdjson::dom::element item : array) {
    const JsonValue entry(item, fmt::format("{}[{}]", value.path(), index++));
    if (auto error = take(entry)) return error;
  }
  return std::nullopt;
}

void append_line(std::string_view text, std::string* out) {
  if (!out->empty()) *out += '\n';
  *out += text;
}

// A string, or text blocks joined by line ends.
Outcome read_text(const JsonValue& value, std::string* out) {
  std::string_view text;
  if (value.element().get(text) == simdjson::SUCCESS) {
    *out = text;
    return std::nullopt;
  }
  return each(value, [&](const JsonValue& block) -> Outcome {
    const auto type = block.string("type");
    if (!type.ok()) return bad(block, "must be an object with a type");
    const auto part = block.string("text");
    if (*type != "text" || !part.ok())
      return bad(block, fmt::format("blocks of type {} are not supported", quote(*type, 32)));
    append_line(*part, out);
    return std::nullopt;
  });
}

// One turn may become several messages: results of tools stand alone.
struct Turn {
  std::string role;
  std::string text;
  std::string reasoning;
  Json calls;
  bool said = false;

  void flush(Json* messages) {
    if (!said) return;
    Json message = Json::object();
    message["role"] = role;
    message["content"] = std::exchange(text, {});
    if (!reasoning.empty()) message["reasoning_content"] = std::exchange(reasoning, {});
    if (!calls.is_null()) message["tool_calls"] = std::exchange(calls, Json());
    messages->push_back(std::move(message));
    said = false;
  }
};

Outcome read_tool_use(const JsonValue& block, Turn* turn) {
  const auto id = block.string("id");
  const auto name = block.string("name");
  const auto input = block.get("input");
  if (turn->role != "assistant" || !id.ok() || !name.ok() || !input || !input->is_object())
    return bad(block, "must be the assistant's, with an id, a name and an object input");
  Json function = Json::object();
  function["name"] = *name;
  function["arguments"] = to_ordered_json(*input);
  Json call = Json::object();
  call["id"] = *id;
  call["type"] = "function";
  call["function"] = std::move(function);
  turn->calls.push_back(std::move(call));
  turn->said = true;
  return std::nullopt;
}

Outcome read_tool_result(const JsonValue& block, Turn* turn, Json* messages) {
  const auto id = block.string("tool_use_id");
  if (turn->role != "user" || !id.ok()) return bad(block, "must be the user's, with a tool_use_id");
  turn->flush(messages);
  std::string text;
  if (const auto content = block.get("content")) {
    if (auto error = read_text(*content, &text)) return error;
  }
  Json message = Json::object();
  message["role"] = "tool";
  message["tool_call_id"] = *id;
  message["content"] = std::move(text);
  messages->push_back(std::move(message));
  return std::nullopt;
}

Outcome read_block(const JsonValue& block, Turn* turn, Json* messages) {
  const auto type = block.string("type");
  if (!type.ok()) return bad(block, "must be an object with a type");
  if (*type == "tool_use") return read_tool_use(block, turn);
  if (*type == "tool_result") return read_tool_result(block, turn, messages);
  if (*type == "redacted_thinking") return std::nullopt;
  const bool thinking = *type == "thinking";
  if (!thinking && *type != "text")
    return bad(block, fmt::format("blocks of type {} are not supported", quote(*type, 32)));
  const auto text = block.string(thinking ? "thinking" : "text");
  if (!text.ok()) return bad(block, "must have a text");
  append_line(*text, thinking ? &turn->reasoning : &turn->text);
  turn->said = true;
  return std::nullopt;
}

Outcome read_turn(const JsonValue& value, Json* messages) {
  const auto role = value.string("role");
  if (!role.ok() || (*role != "user" && *role != "assistant"))
    return bad(value, "must be an object whose role is user or assistant");
  const auto content = value.get("content");
  if (!content) return bad(value, "must have a content");
  Turn turn{.role = std::string(*role), .text = {}, .reasoning = {}, .calls = {}};
  std::string_view text;
  if (content->element().get(text) == simdjson::SUCCESS) {
    turn.text = text;
    turn.said = true;
  } else if (auto error = each(*content, [&](const JsonValue& block) {
               return read_block(block, &turn, messages);
             })) {
    return error;
  }
  turn.flush(messages);
  return std::nullopt;
}

}  // namespace

Outcome read_turns(const JsonValue& value, ApiRequest& request) {
  simdjson::dom::array array;
  if (value.element().get(array) != simdjson::SUCCESS || array.size() == 0)
    return bad(value, "must be a list that is not empty");
  if (array.size() > kMaxTurns)
    return bad(value, fmt::format("must hold at most {} messages", kMaxTurns));
  request.messages = Json::array();
  if (auto error =
          each(value, [&](const JsonValue& turn) { return read_turn(turn, &request.messages); }))
    return error;
  if (request.messages.empty()) return bad(value, "hold nothing");
  if (request.messages.back()["role"] == "assistant")
    return bad(value, "must end with the user's turn: answers cannot be begun for the model");
  return std::nullopt;
}

Outcome read_system(const JsonValue& value, ApiRequest& request) {
  return read_text(value, &request.system);
}

Outcome read_turn_tools(const JsonValue& value, ApiRequest& request) {
  Json tools = Json::array();
  auto error = each(value, [&](const JsonValue& tool) -> Outcome {
    if (tools.size() == kMaxTools)
      return bad(value, fmt::format("must hold at most {} tools", kMaxTools));
    const auto type = tool.string("type");
    if (type.ok() && *type != "custom")
      return unsupported_field("tools", fmt::format("{}: tools of type {} are not supported",
                                                    tool.path(), quote(*type, 32)));
    const auto name = tool.string("name");
    if (!name.ok() || !is_tool_name(*name))
      return bad(tool, "must have a name of 1 to 64 letters, digits, _, - and .");
    if (auto error = refuse_strict(tool)) return error;
    const auto schema = tool.get("input_schema");
    if (!schema || !schema->is_object()) return bad(tool, "must have an input_schema");
    Json function = Json::object();
    function["name"] = *name;
    if (const auto description = tool.get("description")) {
      if (!description->is_string()) return bad(*description, "must be a string");
      function["description"] = to_ordered_json(*description);
    }
    function["parameters"] = to_ordered_json(*schema);
    Json entry = Json::object();
    entry["type"] = "function";
    entry["function"] = std::move(function);
    tools.push_back(std::move(entry));
    return std::nullopt;
  });
  if (error) return error;
  return keep_tools(value, std::move(tools), request);
}

Outcome read_turn_tool_choice(const JsonValue& value, ApiRequest& request) {
  const auto type = value.string("type");
  if (!type.ok()) return bad(value, "must be an object with a type");
  if (*type != "auto" && *type != "none")
    return unsupported_field("tool_choice",
                             "tool_choice: only auto and none are supported: this server does not "
                             "constrain output yet");
  request.tool_choice_none = *type == "none";
  const auto single = value.boolean("disable_parallel_tool_use", false);
  if (!single.ok()) return bad(value, "disable_parallel_tool_use must be true or false");
  request.parallel_tool_calls = !*single;
  return std::nullopt;
}

Outcome read_thinking(const JsonValue& value, ApiRequest& request) {
  const auto type = value.string("type");
  if (!type.ok() || (*type != "enabled" && *type != "adaptive" && *type != "disabled"))
    return bad(value, "must be an object whose type is enabled, adaptive or disabled");
  request.template_kwargs["enable_thinking"] = *type != "disabled";
  return std::nullopt;
}

}  // namespace pelton::server
