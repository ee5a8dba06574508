// Counters and histograms of the server. A fixed set of series: nothing a client sends becomes a
// label.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "server/prometheus.h"

namespace pelton::server {

// Where one request's time went, in seconds since it came in.
struct RequestTimes {
  double tokenized = 0;
  double admitted = 0;     // handed to the engine
  double scheduled = 0;    // its first rows began; 0 = none did
  double first_token = 0;  // 0 = none came
  double ended = 0;
};

enum class RequestEnd { kStop, kLength, kCancelled, kFailed, kRefused };
// "stop", "length", "cancelled", "error", "refused".
std::string_view request_end_name(RequestEnd end);

class Metrics {
 public:
  Metrics();

  void request_ended(RequestEnd end, const RequestTimes& times, const Usage& usage);
  void inter_token(double seconds) { inter_token_.add(seconds); }
  void response(int status);
  // To be called a few times a second.
  void sample_utilization(double busy_seconds, double now) {
    utilization_.sample(busy_seconds, now);
  }

  struct Gauges {
    int waiting = 0;
    int connections = 0;
    double busy_seconds = 0;
    double uptime_seconds = 0;
  };
  // `vllm_model`: when not empty, vLLM's names beside our own, labelled with it.
  std::string text(const engine::EngineMetrics& engine, const Gauges& gauges,
                   std::string_view vllm_model = {}) const;

 private:
  static constexpr size_t kEnds = 5;

  void write_requests(const engine::EngineMetrics& engine, const Gauges& gauges,
                      MetricsWriter* writer) const;
  void write_engine(const engine::EngineMetrics& engine, const Gauges& gauges,
                    MetricsWriter* writer) const;
  void write_histograms(MetricsWriter* writer) const;

  std::array<std::atomic<int64_t>, kEnds> ended_{};
  std::array<std::atomic<int64_t>, 6> statuses_{};  // by hundreds
  Histogram queue_wait_, budget_wait_, prefill_, decode_, first_token_, inter_token_;
  Histogram stopped_, cut_, cancelled_;  // whole requests, by how they ended
  Histogram per_token_, prompt_tokens_, answer_tokens_;
  RecentValues recent_waits_;
  Utilization utilization_;
};

}  // namespace pelton::server
