// What the two APIs' readers of tools share.
#pragma once

#include <cstddef>
#include <string_view>

namespace pelton::server {

constexpr size_t kMaxTools = 128;
bool is_tool_name(std::string_view name);

}  // namespace pelton::server
