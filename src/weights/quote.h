// Error lines about files: names that a file chose are quoted so that they stay on one line.
#pragma once

#include <string>
#include <string_view>

#include "pelton/status.h"

namespace pelton::weights {

// 'name' with control characters and invalid UTF-8 escaped as \xNN, cut after 256 bytes.
std::string quote(std::string_view name);

// "path: reason" and "path: tensor 'name': reason".
Status file_error(StatusCode code, std::string_view path, std::string_view reason);
Status tensor_error(StatusCode code, std::string_view path, std::string_view name,
                    std::string_view reason);

}  // namespace pelton::weights
