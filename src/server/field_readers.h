// Readers of fields that are more than a plain value.
#pragma once

#include <optional>

#include "base/json.h"
#include "server/api_error.h"
#include "server/api_request.h"

namespace pelton::server {

std::optional<ApiError> read_prompt(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_messages(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_stop(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_stop_token_ids(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_logit_bias(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_seed(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_stream_options(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_response_format(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_template_kwargs(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_tokens(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_modalities(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_tools(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_tool_choice(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_encoding_format(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_pooling(const JsonValue& value, ApiRequest& request);
// Of Anthropic's API, brought to the form of the other one.
std::optional<ApiError> read_turns(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_system(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_turn_tools(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_turn_tool_choice(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> read_thinking(const JsonValue& value, ApiRequest& request);
// Known to the API, beyond this server: any value but null is refused, and so is any true, list or
// object where false or an empty one would mean nothing.
std::optional<ApiError> refuse_value(const JsonValue& value, ApiRequest& request);
std::optional<ApiError> refuse_if_set(const JsonValue& value, ApiRequest& request);
// For the books of the client or its vendor: read and left alone.
std::optional<ApiError> ignore_value(const JsonValue& value, ApiRequest& request);

// A value as the template interpreter takes it. Depth is bounded by the parser.
Json to_ordered_json(const JsonValue& value);

}  // namespace pelton::server
