// Many records as few figures.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench_serve/record.h"

namespace pelton::bench_serve {

struct Distribution {
  int64_t count = 0;
  double mean = 0, deviation = 0, least = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, most = 0;
};

// Percentiles between two values are interpolated, as numpy's are. All zero without values.
Distribution distribution(std::vector<double> values);

// What an answer must keep to count for goodput; seconds.
struct Goals {
  std::optional<double> ttft, tpot, e2e;
  bool any() const { return ttft || tpot || e2e; }
};

// Of "ttft:500", "tpot:50", "e2el:10000": milliseconds. kInvalidArgument names the option.
Result<Goals> parse_goals(const std::vector<std::string>& texts);
bool meets(const Record& record, const Goals& goals);

struct Summary {
  int requests = 0;
  int completed = 0;
  std::map<std::string, int> errors;  // by error_kind()
  double seconds = 0;                 // first sent to last ended
  int most_at_once = 0;
  // Of the completed ones.
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  int counted_by_server = 0;          // answers whose tokens the server counted
  int good = 0;                       // that meet the goals
  Distribution ttft, tpot, itl, e2e;  // seconds

  double per_second(double amount) const { return seconds > 0 ? amount / seconds : 0; }
};

Summary summarize(const std::vector<Record>& records, const Goals& goals);

// Comma-separated values, a line a request below a line of names; times in milliseconds. Ready for
// plotting: no quotes are needed to read it.
std::string csv(const std::vector<Record>& records);

}  // namespace pelton::bench_serve
