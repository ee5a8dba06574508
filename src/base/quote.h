// Text that a file chose, made fit for an error line.
#pragma once

#include <string>
#include <string_view>

namespace pelton {

// 'text' on one line: control characters and invalid UTF-8 become \xNN, and about `max_bytes` bytes
// of the text are shown.
std::string quote(std::string_view text, size_t max_bytes = 256);

}  // namespace pelton
