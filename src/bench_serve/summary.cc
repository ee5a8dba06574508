#include "bench_serve/summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

namespace pelton::bench_serve {
namespace {

constexpr std::array<std::string_view, kOutcomes> kNames = {"ok",  "connect",   "timeout", "http",
                                                            "cut", "malformed", "error",   "empty"};

double percentile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

// Requests under way at the busiest moment.
int most_at_once(const std::vector<Record>& records) {
  std::vector<std::pair<double, int>> changes;
  for (const Record& r : records) {
    changes.emplace_back(r.sent, 1);
    changes.emplace_back(r.ended, -1);
  }
  std::ranges::sort(changes);
  int now = 0;
  int most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, now += change);
  return most;
}

}  // namespace

std::string_view outcome_name(Outcome outcome) { return kNames[static_cast<size_t>(outcome)]; }

std::string error_kind(const Record& record) {
  if (record.outcome == Outcome::kHttp) return fmt::format("http {}", record.http_status);
  return std::string(outcome_name(record.outcome));
}

Distribution distribution(std::vector<double> values) {
  Distribution d;
  if (values.empty()) return d;
  std::ranges::sort(values);
  const auto n = static_cast<double>(values.size());
  double sum = 0;
  for (const double v : values) sum += v;
  d.count = static_cast<int64_t>(values.size());
  d.mean = sum / n;
  double squares = 0;
  for (const double v : values) squares += (v - d.mean) * (v - d.mean);
  d.deviation = std::sqrt(squares / n);
  d.least = values.front();
  d.p50 = percentile(values, 0.50);
  d.p90 = percentile(values, 0.90);
  d.p95 = percentile(values, 0.95);
  d.p99 = percentile(values, 0.99);
  d.most = values.back();
  return d;
}

Result<Goals> parse_goals(const std::vector<std::string>& texts) {
  Goals goals;
  for (const std::string& text : texts) {
    const size_t colon = text.find(':');
    const std::string_view name = std::string_view(text).substr(0, colon);
    std::optional<double>* goal = name == "ttft"   ? &goals.ttft
                                  : name == "tpot" ? &goals.tpot
                                  : name == "e2el" ? &goals.e2e
                                                   : nullptr;
    double value = 0;
    const char* begin = colon == std::string::npos ? nullptr : text.data() + colon + 1;
    const char* end = text.data() + text.size();
    const bool number = begin != nullptr && std::from_chars(begin, end, value).ec == std::errc() &&
                        std::from_chars(begin, end, value).ptr == end;
    if (goal == nullptr || !number || !(value > 0) || !std::isfinite(value)) {
      return invalid_argument("--goodput: '" + text +
                              "' is not ttft:MS, tpot:MS or e2el:MS with MS above 0");
    }
    *goal = value * 1e-3;
  }
  return goals;
}

bool meets(const Record& record, const Goals& goals) {
  return record.ok() && record.ttft() <= goals.ttft.value_or(record.ttft()) &&
         record.tpot() <= goals.tpot.value_or(record.tpot()) &&
         record.e2e() <= goals.e2e.value_or(record.e2e());
}

Summary summarize(const std::vector<Record>& records, const Goals& goals) {
  Summary s;
  s.requests = static_cast<int>(records.size());
  if (records.empty()) return s;
  std::vector<double> ttft;
  std::vector<double> tpot;
  std::vector<double> itl;
  std::vector<double> e2e;
  double begin = records.front().sent;
  double end = begin;
  for (const Record& r : records) {
    begin = std::min(begin, r.sent);
    end = std::max(end, r.ended);
    if (!r.ok()) {
      ++s.errors[error_kind(r)];
      continue;
    }
    ++s.completed;
    s.prompt_tokens += r.prompt_tokens;
    s.cached_tokens += r.cached_tokens;
    s.output_tokens += r.output_tokens;
    s.counted_by_server += r.counted_by_server ? 1 : 0;
    s.good += meets(r, goals) ? 1 : 0;
    ttft.push_back(r.ttft());
    e2e.push_back(r.e2e());
    if (r.output_tokens > 1) tpot.push_back(r.tpot());
    itl.insert(itl.end(), r.gaps.begin(), r.gaps.end());
  }
  s.seconds = end - begin;
  s.most_at_once = most_at_once(records);
  s.ttft = distribution(std::move(ttft));
  s.tpot = distribution(std::move(tpot));
  s.itl = distribution(std::move(itl));
  s.e2e = distribution(std::move(e2e));
  return s;
}

std::string csv(const std::vector<Record>& records) {
  std::string out =
      "request,outcome,http_status,due_ms,sent_ms,ttft_ms,tpot_ms,itl_max_ms,e2e_ms,prompt_tokens,"
      "cached_tokens,output_tokens,counted_by,shared_prefix\n";
  for (const Record& r : records) {
    const double widest = r.gaps.empty() ? 0 : *std::ranges::max_element(r.gaps);
    const bool answered = r.first > 0;
    out += fmt::format("{},{},{},{:.3f},{:.3f},{},{},{:.3f},{:.3f},{},{},{},{},{}\n", r.index,
                       outcome_name(r.outcome), r.http_status, 1e3 * r.due, 1e3 * r.sent,
                       answered ? fmt::format("{:.3f}", 1e3 * r.ttft()) : "",
                       answered ? fmt::format("{:.3f}", 1e3 * r.tpot()) : "", 1e3 * widest,
                       1e3 * r.e2e(), r.prompt_tokens, r.cached_tokens, r.output_tokens,
                       r.counted_by_server ? "server" : "client", r.shares_prefix ? 1 : 0);
  }
  return out;
}

}  // namespace pelton::bench_serve
