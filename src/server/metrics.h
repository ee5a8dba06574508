// Counters and histograms of the server in Prometheus' text form. A fixed set of series: nothing a
// client sends becomes a label.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "engine/engine.h"

namespace pelton::server {

class Histogram {
 public:
  // `bounds`: ascending, static.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds) {}
  void add(double value);
  void write(const std::string& name, std::string* out) const;

 private:
  static constexpr size_t kMaxBuckets = 24;
  std::span<const double> bounds_;
  std::array<std::atomic<int64_t>, kMaxBuckets> counts_{};  // the last: beyond every bound
  std::atomic<double> sum_{0};
};

// Where one request's time went, in seconds since it came in.
struct RequestTimes {
  double tokenized = 0;
  double admitted = 0;     // handed to the engine
  double first_token = 0;  // 0 = none came
  double ended = 0;
};

enum class RequestEnd { kStop, kLength, kCancelled, kFailed, kRefused };

class Metrics {
 public:
  Metrics();

  void request_ended(RequestEnd end, const RequestTimes& times, const Usage& usage);
  void inter_token(double seconds) { inter_token_.add(seconds); }
  void response(int status);

  struct Gauges {
    int waiting = 0;
    int connections = 0;
    double busy_seconds = 0;
    double uptime_seconds = 0;
  };
  std::string text(const engine::EngineMetrics& engine, const Gauges& gauges) const;

 private:
  std::array<std::atomic<int64_t>, 5> ended_{};
  std::array<std::atomic<int64_t>, 6> statuses_{};  // by hundreds
  Histogram queue_wait_, first_token_, inter_token_, whole_, prompt_tokens_, answer_tokens_;
};

}  // namespace pelton::server
