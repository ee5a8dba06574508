// Error lines about files: names that a file chose are quoted so that they stay on one line.
#pragma once

#include <string>
#include <string_view>

#include "base/quote.h"
#include "pelton/status.h"

namespace pelton::weights {

// "path: reason" and "path: tensor 'name': reason".
Status file_error(StatusCode code, std::string_view path, std::string_view reason);
Status tensor_error(StatusCode code, std::string_view path, std::string_view name,
                    std::string_view reason);

}  // namespace pelton::weights
