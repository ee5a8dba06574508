// Where a request's time went, as JSON: in an answer that asked for it and as a line of the request
// log. Prompts and answers are in neither.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "pelton/request.h"
#include "server/json_writer.h"
#include "server/metrics.h"

namespace pelton::server {

// An object: tokenize, queue (before the engine), budget_wait (inside, for rows, slots or blocks),
// prefill, decode, detokenize in milliseconds; and "waterfall", for each prompt its chunks with
// their beginnings after the request's arrival.
void write_timings(const RequestTimes& times, std::span<const RequestTimeline> timelines,
                   JsonWriter* json);

struct LoggedRequest {
  std::string_view id;
  std::string_view client_id;  // what the client calls it; empty = nothing
  std::string_view route;
  RequestEnd end = RequestEnd::kStop;
  bool stream = false;
  int tenant = 0;
  Usage usage;
  RequestTimes times;
  std::span<const RequestTimeline> timelines;
};

// One line, without its end, whatever bytes the client's texts hold.
std::string request_line(const LoggedRequest& request, int64_t unix_milliseconds);

}  // namespace pelton::server
