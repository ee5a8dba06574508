// The context of a rendering as template values, marking what the request's sender wrote.
#pragma once

#include "text/chat_template.h"
#include "text/jinja/value.h"

namespace pelton::text::jinja {

// Members of `context` as globals. Top-level strings named *_token are the model's own, and so are
// well-known values of "role"; every other string and every key is the sender's.
std::vector<std::pair<std::string, Value>> globals_from_json(Run& run, const Json& context);

}  // namespace pelton::text::jinja
