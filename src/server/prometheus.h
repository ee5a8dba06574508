// Prometheus' text form: histograms, figures over recent values, and a writer that knows each
// series' own name and, where there is one, the name that vLLM gives the same thing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

namespace pelton::server {

class Histogram {
 public:
  // `bounds`: ascending, static, fewer than kMaxBuckets.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds) {}
  void add(double value);

  std::span<const double> bounds() const { return bounds_; }
  // Values in bucket `i`; i == bounds().size(): beyond every bound.
  int64_t count(size_t i) const { return counts_[i].load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kMaxBuckets = 24;
  std::span<const double> bounds_;
  std::array<std::atomic<int64_t>, kMaxBuckets> counts_{};
  std::atomic<double> sum_{0};
};

// The last values of a kind.
class RecentValues {
 public:
  void add(double value);
  // Of those that are there, 0 without any; `share` in [0, 1].
  double quantile(double share) const;

 private:
  static constexpr size_t kKept = 512;
  mutable std::mutex mutex_;
  std::array<double, kKept> values_{};
  size_t next_ = 0;
  size_t held_ = 0;
};

// How busy the device was in each of the last seconds, from a counter of busy seconds that somebody
// reads from time to time.
class Utilization {
 public:
  // Any thread may call; `now` in seconds, ascending. Calls less than a second apart are joined.
  void sample(double busy_seconds, double now);
  struct Figures {
    double mean = 0;       // share of time inside steps
    double deviation = 0;  // of the seconds' shares
  };
  Figures figures() const;

 private:
  static constexpr size_t kKept = 60;
  mutable std::mutex mutex_;
  std::array<double, kKept> shares_{};
  size_t next_ = 0;
  size_t held_ = 0;
  double last_busy_ = 0;
  double last_time_ = 0;
};

struct SeriesName {
  std::string_view own;   // without the "pelton_"
  std::string_view help;  // one line
  std::string_view vllm = {};
};

struct LabelledCount {
  std::string_view value;  // of the label
  int64_t count = 0;
};

class MetricsWriter {
 public:
  // With `model`, every series that has a vLLM name is written under that one too, labelled with
  // the model's name as vLLM does.
  explicit MetricsWriter(std::string_view model = {});

  void gauge(const SeriesName& name, double value) { single(name, "gauge", value); }
  void counter(const SeriesName& name, double value) { single(name, "counter", value); }
  // One series a value of the label.
  void counters(const SeriesName& name, std::string_view label, std::string_view vllm_label,
                std::span<const LabelledCount> counts);
  void histogram(const SeriesName& name, const Histogram& values);
  // One histogram a value of the label, for example by finish reason.
  struct LabelledHistogram {
    std::string_view value;
    const Histogram* values = nullptr;
  };
  void histograms(const SeriesName& name, std::string_view label,
                  std::span<const LabelledHistogram> parts);
  std::string take() { return std::move(out_); }

 private:
  void head(std::string_view full_name, std::string_view type, std::string_view help);
  void single(const SeriesName& name, std::string_view type, double value);
  void write_histogram(const std::string& full_name, const std::string& labels,
                       const Histogram& values);
  bool has_vllm(const SeriesName& name) const {
    return !model_label_.empty() && !name.vllm.empty();
  }

  std::string model_label_;  // model_name="…", escaped; empty = own names only
  std::string out_;
};

}  // namespace pelton::server
