// /status: what the dashboard shows, as one JSON object. Counters are totals since the start.
#include <charconv>

#include "server/json_writer.h"
#include "server/service.h"

namespace pelton::server {
namespace {

// N of "since=N"; 0 for anything else.
int64_t since_of(std::string_view query) {
  constexpr std::string_view kName = "since=";
  int64_t number = 0;
  if (query.rfind(kName, 0) != 0) return 0;
  query.remove_prefix(kName.size());
  const auto read = std::from_chars(query.data(), query.data() + query.size(), number);
  const bool whole = read.ec == std::errc() && read.ptr == query.data() + query.size();
  return whole && number > 0 ? number : 0;
}

void write_request(const RecentRequest& r, JsonWriter& json) {
  json.begin_object().field("id", r.sequence);
  json.key("arrival_s").number(r.arrival);
  json.key("tokenized_s").number(r.times.tokenized);
  json.key("admitted_s").number(r.times.admitted);
  json.key("scheduled_s").number(r.times.scheduled);
  json.key("first_token_s").number(r.times.first_token);
  json.key("ended_s").number(r.times.ended);
  json.field("prompt_tokens", r.usage.prompt_tokens);
  json.field("cached_tokens", r.usage.cached_tokens);
  json.field("completion_tokens", r.usage.completion_tokens);
  json.field("end", request_end_name(r.end)).end_object();
}

void write_engine(const engine::EngineMetrics& m, JsonWriter& json) {
  const sched::SchedulerStats& s = m.scheduler;
  json.field("running", int64_t{s.running}).field("steps", m.steps);
  json.field("prompt_tokens", m.prompt_tokens).field("generated_tokens", m.generated_tokens);
  json.field("scheduled_tokens", s.scheduled_tokens).field("possible_tokens", s.possible_tokens);
  json.field("prefix_query_tokens", s.prefix_queries_tokens);
  json.field("prefix_hit_tokens", s.prefix_hit_tokens);
  json.field("preemptions", s.preemptions).field("recomputed_tokens", s.recomputed_tokens);
  json.field("kv_blocks", int64_t{s.total_blocks});
  json.field("kv_blocks_free", int64_t{s.free_blocks});
  json.field("kv_blocks_cached", int64_t{s.cached_blocks});
  json.field("finished", m.finished).field("cancelled", m.cancelled).field("failed", m.failed);
}

}  // namespace

void Service::remember(const Generation& generation) {
  const std::chrono::duration<double> arrival = generation.arrival() - started_;
  recent_.add({.arrival = arrival.count(),
               .times = generation.times(),
               .usage = generation.usage(),
               .end = generation.how()});
}

std::string Service::status_json(std::string_view query) {
  int waiting = 0;
  {
    const std::lock_guard lock(mutex_);
    waiting = admission_.waiting();
  }
  const engine::EngineMetrics metrics = engine_.metrics();
  JsonWriter json;
  json.begin_object().field("model", options_.served_names.front());
  json.field("name", engine_.files().display_name()).field("version", options_.version);
  json.key("ready").boolean(!draining_ && !damaged_);
  json.key("uptime_s").number(std::chrono::duration<double>(Clock::now() - started_).count());
  json.key("busy_s").number(loop_->busy_seconds());
  json.field("max_model_len", int64_t{engine_.options().max_model_len});
  json.field("max_num_seqs", int64_t{engine_.options().max_num_seqs});
  json.field("max_queue", int64_t{options_.max_queue});
  json.field("block_size", int64_t{engine_.options().block_size});
  json.field("waiting", int64_t{waiting} + metrics.scheduler.waiting);
  json.field("connections", int64_t{http_->open_connections()});
  write_engine(metrics, json);
  json.key("requests").begin_array();
  for (const RecentRequest& request : recent_.since(since_of(query))) write_request(request, json);
  json.end_array().end_object();
  return json.take();
}

}  // namespace pelton::server
