// What the two APIs' readers of tools share.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "server/api_error.h"
#include "server/api_request.h"

namespace pelton::server {

constexpr size_t kMaxTools = 256;
constexpr size_t kMaxToolBytes = 1u
                                 << 20;  // of all tools with their schemas, as JSON without blanks
// A tool that wants its arguments held to its schema is refused: output is not constrained yet.
std::optional<ApiError> refuse_strict(const JsonValue& tool);
// Keeps them for the template; none where the list is empty.
std::optional<ApiError> keep_tools(const JsonValue& field, Json tools, ApiRequest& request);
bool is_tool_name(std::string_view name);

}  // namespace pelton::server
