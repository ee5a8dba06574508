#include "server/metrics.h"

#include <algorithm>

namespace pelton::server {
namespace {

constexpr std::array kSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,   0.25, 0.5,
                                 1.0,   2.5,    5.0,   10.0, 25.0,  60.0, 150.0, 600.0};
constexpr std::array kTokens = {1.0,    4.0,    16.0,   64.0,    128.0,   256.0,   512.0,   1024.0,
                                2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131072.0};
constexpr std::array<std::string_view, 5> kEndNames = {"stop", "length", "cancelled", "error",
                                                       "refused"};

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

double number(int64_t value) { return static_cast<double>(value); }

}  // namespace

std::string_view request_end_name(RequestEnd end) { return kEndNames[static_cast<size_t>(end)]; }

Metrics::Metrics()
    : queue_wait_(kSeconds),
      budget_wait_(kSeconds),
      prefill_(kSeconds),
      decode_(kSeconds),
      first_token_(kSeconds),
      inter_token_(kSeconds),
      stopped_(kSeconds),
      cut_(kSeconds),
      cancelled_(kSeconds),
      per_token_(kSeconds),
      prompt_tokens_(kTokens),
      answer_tokens_(kTokens) {}

void Metrics::request_ended(RequestEnd end, const RequestTimes& times, const Usage& usage) {
  ended_[static_cast<size_t>(end)].fetch_add(1, std::memory_order_relaxed);
  if (times.scheduled > 0) {
    const double wait = times.scheduled - times.tokenized;
    queue_wait_.add(wait);
    recent_waits_.add(wait);
    budget_wait_.add(times.scheduled - times.admitted);
  }
  if (times.first_token > 0) first_token_.add(times.first_token);
  if (end == RequestEnd::kCancelled) cancelled_.add(times.ended);
  if (end != RequestEnd::kStop && end != RequestEnd::kLength) return;
  (end == RequestEnd::kStop ? stopped_ : cut_).add(times.ended);
  if (times.first_token > 0) {
    prefill_.add(times.first_token - times.scheduled);
    decode_.add(times.ended - times.first_token);
    if (usage.completion_tokens > 1)
      per_token_.add((times.ended - times.first_token) / number(usage.completion_tokens - 1));
  }
  prompt_tokens_.add(number(usage.prompt_tokens));
  answer_tokens_.add(number(usage.completion_tokens));
}

void Metrics::response(int status) {
  const auto place = static_cast<size_t>(std::clamp(status / 100, 0, 5));
  statuses_[place].fetch_add(1, std::memory_order_relaxed);
}

std::string Metrics::text(const engine::EngineMetrics& engine, const Gauges& gauges,
                          std::string_view vllm_model) const {
  MetricsWriter writer(vllm_model);
  write_requests(engine, gauges, &writer);
  write_engine(engine, gauges, &writer);
  write_histograms(&writer);
  return writer.take();
}

void Metrics::write_requests(const engine::EngineMetrics& engine, const Gauges& gauges,
                             MetricsWriter* w) const {
  const sched::SchedulerStats& s = engine.scheduler;
  w->gauge({"requests_running", "Sequences that the engine runs.", "num_requests_running"},
           s.running);
  w->gauge({"requests_waiting", "Requests that wait, before and inside the engine.",
            "num_requests_waiting"},
           gauges.waiting + s.waiting);
  w->gauge({"connections_open", "Open HTTP connections."}, gauges.connections);
  w->counter({"engine_requests_total", "Groups of sequences that the engine accepted."},
             number(engine.requests));
  w->counter({"engine_finished_total", "Of them, ended by stop or length."},
             number(engine.finished));
  w->counter({"engine_cancelled_total", "Of them, cancelled."}, number(engine.cancelled));
  w->counter({"engine_failed_total", "Of them, failed."}, number(engine.failed));
  std::array<LabelledCount, kEnds> ends;
  for (size_t i = 0; i < kEnds; ++i) ends[i] = {kEndNames[i], ended_[i].load()};
  w->counters({"requests_ended_total", "Requests by how they ended.", "request_success_total"},
              "finish_reason", "finished_reason", ends);
  const std::array<LabelledCount, 4> responses = {{{"2xx", statuses_[2].load()},
                                                   {"3xx", statuses_[3].load()},
                                                   {"4xx", statuses_[4].load()},
                                                   {"5xx", statuses_[5].load()}}};
  w->counters({"http_responses_total", "Responses by status."}, "status", "", responses);
}

void Metrics::write_engine(const engine::EngineMetrics& engine, const Gauges& gauges,
                           MetricsWriter* w) const {
  const sched::SchedulerStats& s = engine.scheduler;
  w->counter({"steps_total", "Steps of the engine."}, number(engine.steps));
  w->counter({"prompt_tokens_total", "Prompt tokens accepted.", "prompt_tokens_total"},
             number(engine.prompt_tokens));
  w->counter({"generation_tokens_total", "Tokens generated.", "generation_tokens_total"},
             number(engine.generated_tokens));
  w->counter({"preemptions_total", "Sequences that lost their blocks.", "num_preemptions_total"},
             number(s.preemptions));
  w->counter({"recomputed_tokens_total", "Tokens computed again for it."},
             number(s.recomputed_tokens));
  w->counter(
      {"prefix_cache_queries_total", "Prompt tokens looked up.", "prefix_cache_queries_total"},
      number(s.prefix_queries_tokens));
  w->counter({"prefix_cache_hits_total", "Of them, found.", "prefix_cache_hits_total"},
             number(s.prefix_hit_tokens));
  w->counter({"scheduled_tokens_total", "Rows that steps computed for somebody."},
             number(s.scheduled_tokens));
  w->counter({"padding_tokens_total", "Rows of static batches that nobody wants."},
             number(s.padding_tokens));
  w->counter({"possible_tokens_total", "Rows that steps had room for."}, number(s.possible_tokens));
  w->gauge({"batch_efficiency", "Scheduled of possible rows so far."},
           share(s.scheduled_tokens, s.possible_tokens));
  w->gauge({"kv_blocks", "KV blocks in all."}, s.total_blocks);
  w->gauge({"kv_blocks_free", "Of them, free or reclaimable."}, s.free_blocks);
  w->gauge({"kv_blocks_cached", "Of them, holding reusable prefixes."}, s.cached_blocks);
  w->gauge({"kv_cache_usage", "Share of KV blocks in use.", "kv_cache_usage_perc"},
           s.total_blocks == 0 ? 0.0 : 1.0 - share(s.free_blocks, s.total_blocks));
  const Utilization::Figures busy = utilization_.figures();
  w->counter({"engine_busy_seconds_total", "Time inside steps."}, gauges.busy_seconds);
  w->gauge({"device_utilization", "Share of the last minute inside steps."}, busy.mean);
  w->gauge({"device_utilization_deviation", "Standard deviation of its seconds."}, busy.deviation);
  w->gauge({"uptime_seconds", "Time since the start."}, gauges.uptime_seconds);
}

void Metrics::write_histograms(MetricsWriter* w) const {
  w->gauge({"queue_wait_p99_seconds", "99th percentile of the last 512 requests' queue wait."},
           recent_waits_.quantile(0.99));
  w->histogram({"queue_wait_seconds", "From tokenized to the first rows in a step.",
                "request_queue_time_seconds"},
               queue_wait_);
  w->histogram({"budget_wait_seconds", "Of it, inside the engine: for rows, slots or blocks."},
               budget_wait_);
  w->histogram({"prefill_seconds", "From the first rows to the first token.",
                "request_prefill_time_seconds"},
               prefill_);
  w->histogram(
      {"decode_seconds", "From the first token to the end.", "request_decode_time_seconds"},
      decode_);
  w->histogram({"time_to_first_token_seconds", "From request to first token.",
                "time_to_first_token_seconds"},
               first_token_);
  w->histogram(
      {"inter_token_seconds", "Between tokens of a choice.", "inter_token_latency_seconds"},
      inter_token_);
  w->histogram({"time_per_output_token_seconds", "Mean between tokens of a request.",
                "request_time_per_output_token_seconds"},
               per_token_);
  const std::array<MetricsWriter::LabelledHistogram, 3> whole = {
      {{"stop", &stopped_}, {"length", &cut_}, {"cancelled", &cancelled_}}};
  w->histograms({"request_seconds", "From request to end.", "e2e_request_latency_seconds"},
                "finish_reason", whole);
  w->histogram({"request_prompt_tokens", "Tokens of prompts.", "request_prompt_tokens"},
               prompt_tokens_);
  w->histogram({"request_generation_tokens", "Tokens of answers.", "request_generation_tokens"},
               answer_tokens_);
}

}  // namespace pelton::server
