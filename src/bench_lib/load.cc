#include "bench_lib/load.h"

#include "base/rng.h"

namespace pelton::bench_lib {

engine::Engine::EventSink record(Progress& progress) {
  return [&progress, started = false](const TokenEvent& event) mutable {
    progress.tokens += static_cast<int64_t>(event.tokens.size());
    if (!started && !event.tokens.empty()) {
      started = true;
      ++progress.started;
    }
    if (event.finish != FinishReason::kNone) ++progress.finished;
    if (event.finish == FinishReason::kError) progress.error = event.error;
  };
}

Request greedy_request(std::vector<int32_t> prompt, int32_t max_tokens) {
  Request request;
  request.prompt_ids = std::move(prompt);
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

std::vector<int32_t> random_prompt(const engine::Engine& engine, int32_t tokens, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> prompt(static_cast<size_t>(tokens));
  for (int32_t& id : prompt) {
    id = static_cast<int32_t>(random.below(static_cast<uint64_t>(engine.config().vocab_size)));
  }
  return prompt;
}

Result<TimedLoad> run_load(engine::Engine& engine, const std::vector<Request>& requests) {
  Progress progress;
  TimedLoad load;
  size_t next = 0;
  const auto start = Clock::now();
  while (progress.finished < std::ssize(requests)) {
    // The queue is bounded: what it refuses now is offered again after a step.
    while (next < requests.size()) {
      auto id = engine.submit(requests[next], record(progress));
      if (!id.ok() && id.status().code() == StatusCode::kResourceExhausted &&
          progress.finished < static_cast<int64_t>(next)) {
        break;
      }
      if (!id.ok()) return id.status();
      load.prompt_tokens += std::ssize(requests[next++].prompt_ids);
    }
    if (!engine.step() || !progress.error.ok()) break;
  }
  if (!progress.error.ok()) return progress.error;
  load.seconds = seconds_between(start, Clock::now());
  load.generated_tokens = progress.tokens;
  return load;
}

}  // namespace pelton::bench_lib
