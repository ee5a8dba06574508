#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace pelton::server {
namespace {

constexpr std::array kSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,   0.25, 0.5,
                                 1.0,   2.5,    5.0,   10.0, 25.0,  60.0, 150.0, 600.0};
constexpr std::array kTokens = {1.0,    4.0,    16.0,   64.0,    128.0,   256.0,   512.0,   1024.0,
                                2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131072.0};
constexpr std::array<std::string_view, 5> kEnds = {"stop", "length", "cancelled", "error",
                                                   "refused"};

template <typename T>
void series(std::string_view name, std::string_view type, std::string_view help, T value,
            std::string* out) {
  fmt::format_to(std::back_inserter(*out),
                 "# HELP pelton_{0} {2}\n# TYPE pelton_{0} {1}\npelton_{0} {3}\n", name, type, help,
                 value);
}

void header(std::string_view name, std::string_view type, std::string_view help, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "# HELP pelton_{0} {2}\n# TYPE pelton_{0} {1}\n", name,
                 type, help);
}

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

void Histogram::add(double value) {
  const auto place = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<size_t>(place)].fetch_add(1, std::memory_order_relaxed);
  double sum = sum_.load(std::memory_order_relaxed);
  while (!sum_.compare_exchange_weak(sum, sum + value, std::memory_order_relaxed)) {
  }
}

void Histogram::write(const std::string& name, std::string* out) const {
  int64_t total = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    total += counts_[i].load(std::memory_order_relaxed);
    fmt::format_to(std::back_inserter(*out), "pelton_{}_bucket{{le=\"{}\"}} {}\n", name, bounds_[i],
                   total);
  }
  total += counts_[bounds_.size()].load(std::memory_order_relaxed);
  fmt::format_to(std::back_inserter(*out),
                 "pelton_{0}_bucket{{le=\"+Inf\"}} {1}\npelton_{0}_sum {2}\npelton_{0}_count {1}\n",
                 name, total, sum_.load(std::memory_order_relaxed));
}

Metrics::Metrics()
    : queue_wait_(kSeconds),
      first_token_(kSeconds),
      inter_token_(kSeconds),
      whole_(kSeconds),
      prompt_tokens_(kTokens),
      answer_tokens_(kTokens) {}

void Metrics::request_ended(RequestEnd end, const RequestTimes& times, const Usage& usage) {
  ended_[static_cast<size_t>(end)].fetch_add(1, std::memory_order_relaxed);
  if (times.admitted > 0) queue_wait_.add(times.admitted - times.tokenized);
  if (times.first_token > 0) first_token_.add(times.first_token);
  if (end != RequestEnd::kStop && end != RequestEnd::kLength) return;
  whole_.add(times.ended);
  prompt_tokens_.add(static_cast<double>(usage.prompt_tokens));
  answer_tokens_.add(static_cast<double>(usage.completion_tokens));
}

void Metrics::response(int status) {
  const auto place = static_cast<size_t>(std::clamp(status / 100, 0, 5));
  statuses_[place].fetch_add(1, std::memory_order_relaxed);
}

std::string Metrics::text(const engine::EngineMetrics& engine, const Gauges& gauges) const {
  std::string out;
  const sched::SchedulerStats& s = engine.scheduler;
  series("requests_running", "gauge", "Sequences that the engine runs.", s.running, &out);
  series("requests_waiting", "gauge", "Requests that wait, before and inside the engine.",
         gauges.waiting + s.waiting, &out);
  series("connections_open", "gauge", "Open HTTP connections.", gauges.connections, &out);
  series("engine_requests_total", "counter", "Sequences groups that the engine accepted.",
         engine.requests, &out);
  series("engine_finished_total", "counter", "Of them, ended by stop or length.", engine.finished,
         &out);
  series("engine_cancelled_total", "counter", "Of them, cancelled.", engine.cancelled, &out);
  series("engine_failed_total", "counter", "Of them, failed.", engine.failed, &out);
  series("steps_total", "counter", "Steps of the engine.", engine.steps, &out);
  series("prompt_tokens_total", "counter", "Prompt tokens accepted.", engine.prompt_tokens, &out);
  series("generation_tokens_total", "counter", "Tokens generated.", engine.generated_tokens, &out);
  series("preemptions_total", "counter", "Sequences that lost their blocks.", s.preemptions, &out);
  series("recomputed_tokens_total", "counter", "Tokens computed again for it.", s.recomputed_tokens,
         &out);
  series("prefix_cache_queries_total", "counter", "Prompt tokens looked up.",
         s.prefix_queries_tokens, &out);
  series("prefix_cache_hits_total", "counter", "Of them, found.", s.prefix_hit_tokens, &out);
  series("scheduled_tokens_total", "counter", "Rows that steps computed.", s.scheduled_tokens,
         &out);
  series("possible_tokens_total", "counter", "Rows that they had room for.", s.possible_tokens,
         &out);
  series("batch_efficiency", "gauge", "Scheduled of possible tokens so far.",
         share(s.scheduled_tokens, s.possible_tokens), &out);
  series("kv_blocks", "gauge", "KV blocks in all.", s.total_blocks, &out);
  series("kv_blocks_free", "gauge", "Of them, free or reclaimable.", s.free_blocks, &out);
  series("kv_blocks_cached", "gauge", "Of them, holding reusable prefixes.", s.cached_blocks, &out);
  series("kv_cache_usage", "gauge", "Share of KV blocks in use.",
         s.total_blocks == 0 ? 0.0 : 1.0 - share(s.free_blocks, s.total_blocks), &out);
  series("engine_busy_seconds_total", "counter", "Time inside steps.", gauges.busy_seconds, &out);
  series("uptime_seconds", "gauge", "Time since the start.", gauges.uptime_seconds, &out);
  header("requests_ended_total", "counter", "Requests by how they ended.", &out);
  for (size_t i = 0; i < kEnds.size(); ++i)
    out += fmt::format("pelton_requests_ended_total{{finish_reason=\"{}\"}} {}\n", kEnds[i],
                       ended_[i].load());
  header("http_responses_total", "counter", "Responses by status.", &out);
  for (size_t i = 2; i < statuses_.size(); ++i)
    out +=
        fmt::format("pelton_http_responses_total{{status=\"{}xx\"}} {}\n", i, statuses_[i].load());
  const auto histogram = [&](const std::string& name, std::string_view help, const Histogram& h) {
    header(name, "histogram", help, &out);
    h.write(name, &out);
  };
  histogram("queue_wait_seconds", "From tokenized to admitted.", queue_wait_);
  histogram("time_to_first_token_seconds", "From request to first token.", first_token_);
  histogram("inter_token_seconds", "Between tokens of a choice.", inter_token_);
  histogram("request_seconds", "From request to last token.", whole_);
  histogram("request_prompt_tokens", "Tokens of prompts.", prompt_tokens_);
  histogram("request_generation_tokens", "Tokens of answers.", answer_tokens_);
  return out;
}

}  // namespace pelton::server
