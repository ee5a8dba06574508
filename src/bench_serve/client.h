// Sends requests at their times, reads the streams of answers and notes when each piece came. One
// thread serves every connection, so that the load costs the measured machine little.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench_serve/record.h"
#include "bench_serve/target.h"

namespace pelton::bench_serve {

struct PlannedRequest {
  double due = 0;              // seconds after the start
  std::string body = {};       // JSON
  int64_t planned_tokens = 0;  // of the prompt, in case the server does not count them
  bool shares_prefix = false;
};

struct LoadOptions {
  Target target;
  bool chat = false;
  int max_concurrency = 0;  // requests under way at most, others wait unsent; 0 = no bound
  double timeout_s = 600;   // of one request
  std::function<void(int ended)> progress;  // after each request; may be empty
};

// One record a request, in their order. Faults of single requests stand in their records; a status
// only when nothing could be measured at all: the host has no address, memory ran out.
Result<std::vector<Record>> run_load(const LoadOptions& options,
                                     const std::vector<PlannedRequest>& requests);

// The body of a GET answered by 200.
Result<std::string> http_get(const Target& target, const std::string& path, double timeout_s);

}  // namespace pelton::bench_serve
