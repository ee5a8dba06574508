#include "server/prometheus.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

namespace pelton::server {
namespace {

// Label values are UTF-8 between quotes; a model's name comes from a file.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

}  // namespace

void Histogram::add(double value) {
  const auto place = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<size_t>(place)].fetch_add(1, std::memory_order_relaxed);
  double sum = sum_.load(std::memory_order_relaxed);
  while (!sum_.compare_exchange_weak(sum, sum + value, std::memory_order_relaxed)) {
  }
}

void RecentValues::add(double value) {
  const std::lock_guard lock(mutex_);
  values_[next_] = value;
  next_ = (next_ + 1) % kKept;
  held_ = std::min(held_ + 1, kKept);
}

double RecentValues::quantile(double share) const {
  std::array<double, kKept> sorted;
  size_t held = 0;
  {
    const std::lock_guard lock(mutex_);
    sorted = values_;
    held = held_;
  }
  if (held == 0) return 0;
  const auto place = static_cast<size_t>(std::ceil(share * static_cast<double>(held - 1)));
  const auto nth = sorted.begin() + static_cast<ptrdiff_t>(place);
  std::nth_element(sorted.begin(), nth, sorted.begin() + static_cast<ptrdiff_t>(held));
  return *nth;
}

void Utilization::sample(double busy_seconds, double now) {
  const std::lock_guard lock(mutex_);
  const double passed = now - last_time_;
  if (passed < 1) return;
  // A step that began before counts when it ends.
  shares_[next_] = std::clamp((busy_seconds - last_busy_) / passed, 0.0, 1.0);
  next_ = (next_ + 1) % kKept;
  held_ = std::min(held_ + 1, kKept);
  last_busy_ = busy_seconds;
  last_time_ = now;
}

Utilization::Figures Utilization::figures() const {
  const std::lock_guard lock(mutex_);
  Figures f;
  if (held_ == 0) return f;
  const auto n = static_cast<double>(held_);
  for (size_t i = 0; i < held_; ++i) f.mean += shares_[i] / n;
  for (size_t i = 0; i < held_; ++i) f.deviation += (shares_[i] - f.mean) * (shares_[i] - f.mean);
  f.deviation = std::sqrt(f.deviation / n);
  return f;
}

MetricsWriter::MetricsWriter(std::string_view model) {
  if (!model.empty()) model_label_ = fmt::format("model_name=\"{}\"", escaped(model));
}

void MetricsWriter::head(std::string_view full_name, std::string_view type, std::string_view help) {
  out_ += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", full_name, type, help);
}

void MetricsWriter::single(const SeriesName& name, std::string_view type, double value) {
  head(fmt::format("pelton_{}", name.own), type, name.help);
  out_ += fmt::format("pelton_{} {}\n", name.own, value);
  if (!has_vllm(name)) return;
  head(fmt::format("vllm:{}", name.vllm), type, name.help);
  out_ += fmt::format("vllm:{}{{{}}} {}\n", name.vllm, model_label_, value);
}

void MetricsWriter::counters(const SeriesName& name, std::string_view label,
                             std::string_view vllm_label, std::span<const LabelledCount> counts) {
  head(fmt::format("pelton_{}", name.own), "counter", name.help);
  for (const LabelledCount& c : counts)
    out_ += fmt::format("pelton_{}{{{}=\"{}\"}} {}\n", name.own, label, c.value, c.count);
  if (!has_vllm(name)) return;
  head(fmt::format("vllm:{}", name.vllm), "counter", name.help);
  for (const LabelledCount& c : counts)
    out_ += fmt::format("vllm:{}{{{},{}=\"{}\"}} {}\n", name.vllm, model_label_, vllm_label,
                        c.value, c.count);
}

void MetricsWriter::write_histogram(const std::string& full_name, const std::string& labels,
                                    const Histogram& values) {
  const std::string before = labels.empty() ? "" : labels + ",";
  const std::string braces = labels.empty() ? "" : "{" + labels + "}";
  int64_t total = 0;
  for (size_t i = 0; i < values.bounds().size(); ++i) {
    total += values.count(i);
    out_ +=
        fmt::format("{}_bucket{{{}le=\"{}\"}} {}\n", full_name, before, values.bounds()[i], total);
  }
  total += values.count(values.bounds().size());
  out_ += fmt::format("{0}_bucket{{{1}le=\"+Inf\"}} {3}\n{0}_sum{2} {4}\n{0}_count{2} {3}\n",
                      full_name, before, braces, total, values.sum());
}

void MetricsWriter::histogram(const SeriesName& name, const Histogram& values) {
  head(fmt::format("pelton_{}", name.own), "histogram", name.help);
  write_histogram(fmt::format("pelton_{}", name.own), "", values);
  if (!has_vllm(name)) return;
  head(fmt::format("vllm:{}", name.vllm), "histogram", name.help);
  write_histogram(fmt::format("vllm:{}", name.vllm), model_label_, values);
}

void MetricsWriter::histograms(const SeriesName& name, std::string_view label,
                               std::span<const LabelledHistogram> parts) {
  head(fmt::format("pelton_{}", name.own), "histogram", name.help);
  for (const LabelledHistogram& part : parts)
    write_histogram(fmt::format("pelton_{}", name.own), fmt::format("{}=\"{}\"", label, part.value),
                    *part.values);
  if (!has_vllm(name)) return;
  head(fmt::format("vllm:{}", name.vllm), "histogram", name.help);
  for (const LabelledHistogram& part : parts)
    write_histogram(fmt::format("vllm:{}", name.vllm),
                    fmt::format("{},{}=\"{}\"", model_label_, label, part.value), *part.values);
}

}  // namespace pelton::server
