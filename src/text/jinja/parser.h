// Template source to statements.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja/ast.h"

namespace pelton::text::jinja {

// `max_depth` bounds the nesting of blocks and expressions together. Errors are "line N: ..." and
// name the construct; what jinja2 knows and this interpreter does not is kUnsupported.
Result<Body> parse(std::string_view source, int max_depth);

}  // namespace pelton::text::jinja
