#include "server/request_log.h"

#include <algorithm>
#include <cmath>

namespace pelton::server {
namespace {

// Microseconds are as fine as anybody reads.
double milliseconds(double seconds) { return std::round(std::max(0.0, seconds) * 1e6) * 1e-3; }

void write_waterfall(const RequestTimes& times, const RequestTimeline& line, JsonWriter* json) {
  json->begin_object();
  json->key("scheduled_ms").number(milliseconds(times.admitted + line.scheduled));
  json->key("prefill_chunks").begin_array();
  for (int32_t i = 0; i < line.prefill_chunks; ++i) {
    const RequestTimeline::Chunk& chunk = line.prefill[static_cast<size_t>(i)];
    json->begin_object();
    json->key("start_ms").number(milliseconds(times.admitted + chunk.begin));
    json->key("ms").number(milliseconds(chunk.seconds));
    json->field("tokens", int64_t{chunk.tokens}).end_object();
  }
  json->end_array();
  json->key("first_token_ms").number(milliseconds(times.admitted + line.first_token));
  json->field("decode_steps", line.decode_steps);
  json->key("decode_steps_ms").number(milliseconds(line.decode_seconds));
  json->field("preemptions", int64_t{line.preemptions});
  json->field("recomputed_tokens", line.recomputed_tokens).end_object();
}

}  // namespace

void write_timings(const RequestTimes& times, std::span<const RequestTimeline> timelines,
                   JsonWriter* json) {
  const double admitted = times.admitted > 0 ? times.admitted : times.ended;
  const double scheduled = times.scheduled > 0 ? times.scheduled : times.ended;
  const double first = times.first_token > 0 ? times.first_token : times.ended;
  double detokenize = 0;
  for (const RequestTimeline& line : timelines) detokenize += line.detokenize_seconds;
  json->begin_object();
  json->key("tokenize_ms").number(milliseconds(times.tokenized));
  json->key("queue_ms").number(milliseconds(admitted - times.tokenized));
  json->key("budget_wait_ms").number(milliseconds(scheduled - admitted));
  json->key("prefill_ms").number(milliseconds(first - scheduled));
  json->key("decode_ms").number(milliseconds(times.ended - first));
  json->key("detokenize_ms").number(milliseconds(detokenize));
  json->key("total_ms").number(milliseconds(times.ended));
  json->key("waterfall").begin_array();
  for (const RequestTimeline& line : timelines) {
    if (line.scheduled > 0) write_waterfall(times, line, json);
  }
  json->end_array().end_object();
}

std::string request_line(const LoggedRequest& request, int64_t unix_milliseconds) {
  JsonWriter json;
  json.begin_object().field("time_ms", unix_milliseconds).field("request", request.id);
  if (!request.client_id.empty()) json.field("client_request", request.client_id);
  json.field("route", request.route).field("tenant", int64_t{request.tenant});
  json.key("stream").boolean(request.stream);
  json.field("finish_reason", request_end_name(request.end));
  json.field("prompt_tokens", request.usage.prompt_tokens);
  json.field("cached_tokens", request.usage.cached_tokens);
  json.field("completion_tokens", request.usage.completion_tokens).key("timings");
  write_timings(request.times, request.timelines, &json);
  json.end_object();
  return json.take();
}

}  // namespace pelton::server
