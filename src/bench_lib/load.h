// Requests that a benchmark gives to an engine, and what became of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace pelton::bench_lib {

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

// What a group of requests has so far.
struct Progress {
  int64_t tokens = 0;
  int64_t started = 0;  // requests with a token
  int64_t finished = 0;
  Status error;
};

// Counts one request's events; `progress` outlives it.
engine::Engine::EventSink record(Progress& progress);

// `max_tokens` tokens, whatever they are.
Request greedy_request(std::vector<int32_t> prompt, int32_t max_tokens);
std::vector<int32_t> random_prompt(const engine::Engine& engine, int32_t tokens, uint64_t seed);

// Steps until `done` or nothing is left to do.
template <typename Done>
Status run_until(engine::Engine& engine, Progress& progress, Done done) {
  while (progress.error.ok() && !done()) {
    if (!engine.step()) break;
  }
  return progress.error;
}

struct TimedLoad {
  double seconds = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
};
// All of them, offered as fast as the engine's queue takes them.
Result<TimedLoad> run_load(engine::Engine& engine, const std::vector<Request>& requests);

}  // namespace pelton::bench_lib
