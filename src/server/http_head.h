// The head of a request, read strictly: what two readers could understand differently is refused.
#pragma once

#include <string_view>

#include "server/http_types.h"

namespace pelton::server {

struct ParsedHead {
  int status = 0;           // 0: `head` holds; else the answer's status
  const char* reason = "";  // why, for the answer's text
  HttpHead head = {};
};

// `bytes`: everything up to and including the empty line. Refused beside malformed lines: line ends
// other than CRLF, folded lines, blanks before a colon, control characters, Content-Length that is
// no plain number or stands twice or beside Transfer-Encoding, codings other than chunked, a
// missing or second Host.
ParsedHead parse_head(std::string_view bytes, const HttpLimits& limits);

}  // namespace pelton::server
