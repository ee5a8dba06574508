#include "bench_lib/speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/rng.h"

namespace pelton::bench_lib {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

// When a group of requests had its first and its last tokens.
struct Progress {
  int64_t tokens = 0;
  int64_t started = 0;  // requests with a token
  int64_t finished = 0;
  Status error;
};

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

// Steps until `done` or nothing is left to do.
template <typename Done>
Status run_until(engine::Engine& engine, Progress& progress, Done done) {
  while (progress.error.ok() && !done()) {
    if (!engine.step()) break;
  }
  return progress.error;
}

// Steps of the timed parts of a row, and where their time went on a device.
class StepFigures {
 public:
  explicit StepFigures(engine::Engine& engine) : engine_(engine) { engine_.time_steps(true); }
  ~StepFigures() { engine_.time_steps(false); }
  StepFigures(const StepFigures&) = delete;
  StepFigures& operator=(const StepFigures&) = delete;

  void begin() { before_ = engine_.metrics(); }
  void end(double elapsed) {
    const engine::EngineMetrics now = engine_.metrics();
    steps_ += static_cast<double>(now.steps - before_.steps);
    elapsed_ += elapsed;
    waited_ += now.step_times.waited - before_.step_times.waited;
    span_ += now.step_times.span - before_.step_times.span;
    idle_ += now.step_times.idle - before_.step_times.idle;
  }
  void put(SpeedRow* row) const {
    if (steps_ == 0) return;
    row->step_seconds = elapsed_ / steps_;
    if (span_ == 0) return;
    row->host_seconds = (elapsed_ - waited_) / steps_;
    row->idle_share = idle_ / span_;
  }

 private:
  engine::Engine& engine_;
  engine::EngineMetrics before_;
  double steps_ = 0;
  double elapsed_ = 0;
  double waited_ = 0;
  double span_ = 0;
  double idle_ = 0;
};

// 0 where the limit was not measured.
double arithmetic_seconds(double ops, const Roofline& roofline) {
  return roofline.int8_ops_per_second > 0 ? ops / roofline.int8_ops_per_second : 0.0;
}

}  // namespace

WorkModel work_model(const models::ModelConfig& config, const runtime::MemoryPlan& plan) {
  const double embeddings =
      static_cast<double>(config.vocab_size) * static_cast<double>(config.hidden_size);
  const double outside = embeddings * (config.tie_word_embeddings ? 1.0 : 2.0);
  WorkModel work;
  work.streamed_bytes = static_cast<double>(plan.streamed_weights);
  work.kv_bytes_per_token = static_cast<double>(plan.kv_token_bytes);
  work.ops_per_token = 2.0 * std::max(0.0, static_cast<double>(plan.parameters) - outside);
  work.head_ops = 2.0 * embeddings;
  work.attention_ops_per_key = 4.0 * static_cast<double>(config.num_hidden_layers) *
                               static_cast<double>(config.num_attention_heads) *
                               static_cast<double>(config.head_dim);
  return work;
}

Bound decode_bound(const WorkModel& work, const Roofline& roofline, double sequences,
                   double context) {
  const double bytes = work.streamed_bytes + sequences * context * work.kv_bytes_per_token;
  const double ops =
      sequences * (work.ops_per_token + work.head_ops + context * work.attention_ops_per_key);
  const double memory = bytes / roofline.read_bytes_per_second;
  const double arithmetic = arithmetic_seconds(ops, roofline);
  return {std::max(memory, arithmetic), memory >= arithmetic};
}

Bound prefill_bound(const WorkModel& work, const Roofline& roofline, double tokens, double context,
                    double chunk) {
  const double steps = std::max(1.0, tokens / chunk);
  const double keys = context + tokens / 2.0;
  const double ops =
      tokens * (work.ops_per_token + keys * work.attention_ops_per_key) + work.head_ops;
  const double memory = steps * work.streamed_bytes / roofline.read_bytes_per_second;
  const double arithmetic = arithmetic_seconds(ops, roofline);
  return {std::max(memory, arithmetic), memory >= arithmetic};
}

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

SpeedRow make_row(std::string name, double tokens, const std::vector<double>& seconds,
                  const Bound& bound) {
  SpeedRow row;
  row.name = std::move(name);
  std::vector<double> speeds;
  for (const double time : seconds) speeds.push_back(tokens / time);
  row.tokens_per_second = median(speeds);
  if (!speeds.empty()) {
    const auto [low, high] = std::ranges::minmax(speeds);
    row.spread = (high - low) / row.tokens_per_second;
  }
  if (bound.seconds > 0) row.limit = tokens / bound.seconds;
  row.memory_bound = bound.memory;
  return row;
}

Result<SpeedRow> prompt_speed(engine::Engine& engine, const Roofline& roofline, int32_t tokens,
                              int32_t depth, int repeats) {
  std::vector<double> seconds;
  // The first repetition warms caches and the thread pool and is not counted.
  for (int repeat = 0; repeat <= repeats; ++repeat) {
    const auto timed = [&](int32_t length) -> Result<double> {
      Progress progress;
      auto id = engine.submit(
          greedy_request(random_prompt(engine, length, static_cast<uint64_t>(repeat) + 1), 1),
          record(progress));
      if (!id.ok()) return id.status();
      const auto start = Clock::now();
      if (Status s = run_until(engine, progress, [&] { return progress.finished > 0; }); !s.ok()) {
        return s;
      }
      return seconds_between(start, Clock::now());
    };
    // Depth: the time of the longer prompt less that of its beginning.
    Result<double> before = depth > 0 ? timed(depth) : Result<double>(0.0);
    if (!before.ok()) return before.status();
    Result<double> all = timed(depth + tokens);
    if (!all.ok()) return all.status();
    if (repeat > 0) seconds.push_back(*all - *before);
  }
  std::string name = fmt::format("pp{}", tokens);
  if (depth > 0) name += fmt::format("@d{}", depth);
  const Bound bound =
      prefill_bound(work_model(engine.config(), engine.plan()), roofline, tokens, depth,
                    static_cast<double>(engine.options().max_num_batched_tokens));
  return make_row(std::move(name), tokens, seconds, bound);
}

Result<SpeedRow> decode_speed(engine::Engine& engine, const Roofline& roofline, int32_t tokens,
                              int32_t sequences, int32_t depth, int repeats) {
  std::vector<double> seconds;
  StepFigures figures(engine);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    Progress progress;
    for (int32_t sequence = 0; sequence < sequences; ++sequence) {
      // One token to warm up, then the timed ones; the spare one keeps every sequence running
      // until the clock is read.
      auto id = engine.submit(
          greedy_request(random_prompt(engine, std::max(depth, 1),
                                       static_cast<uint64_t>(repeat * sequences + sequence)),
                         tokens + 2 + sequences),
          record(progress));
      if (!id.ok()) return id.status();
    }
    const auto all_started = [&] { return progress.started == sequences; };
    if (Status s = run_until(engine, progress, all_started); !s.ok()) return s;
    const int64_t first = progress.tokens;
    const int64_t target = first + int64_t{tokens} * sequences;
    figures.begin();
    const auto start = Clock::now();
    if (Status s = run_until(engine, progress, [&] { return progress.tokens >= target; });
        !s.ok()) {
      return s;
    }
    const double elapsed = seconds_between(start, Clock::now());
    figures.end(elapsed);
    const auto decoded = static_cast<double>(progress.tokens - first);
    seconds.push_back(elapsed * static_cast<double>(tokens) * sequences / decoded);
    if (Status s = run_until(engine, progress, [&] { return progress.finished == sequences; });
        !s.ok()) {
      return s;
    }
  }
  std::string name = fmt::format("tg{}", tokens);
  if (sequences > 1) name += fmt::format("_b{}", sequences);
  if (depth > 0) name += fmt::format("@d{}", depth);
  Bound bound = decode_bound(work_model(engine.config(), engine.plan()), roofline, sequences,
                             std::max(depth, 1) + tokens / 2.0);
  bound.seconds *= tokens;
  SpeedRow row = make_row(std::move(name), static_cast<double>(tokens) * sequences, seconds, bound);
  figures.put(&row);
  return row;
}

Result<SpeedRow> batched_prompt_speed(engine::Engine& engine, const Roofline& roofline,
                                      int32_t sequences, int32_t tokens, int repeats) {
  std::vector<double> seconds;
  for (int repeat = 0; repeat <= repeats; ++repeat) {  // the first warms up
    Progress progress;
    const auto start = Clock::now();
    for (int32_t i = 0; i < sequences; ++i) {
      const auto seed = static_cast<uint64_t>(repeat * sequences + i) + 1;
      auto id =
          engine.submit(greedy_request(random_prompt(engine, tokens, seed), 1), record(progress));
      if (!id.ok()) return id.status();
    }
    if (Status s = run_until(engine, progress, [&] { return progress.finished == sequences; });
        !s.ok()) {
      return s;
    }
    if (repeat > 0) seconds.push_back(seconds_between(start, Clock::now()));
  }
  Bound bound = prefill_bound(work_model(engine.config(), engine.plan()), roofline, tokens, 0,
                              static_cast<double>(engine.options().max_num_batched_tokens));
  bound.seconds *= sequences;
  return make_row(fmt::format("pp{}x{}", sequences, tokens),
                  static_cast<double>(sequences) * tokens, seconds, bound);
}

Result<SpeedRow> fixed_length_throughput(engine::Engine& engine, int32_t input, int32_t output,
                                         int repeats) {
  const int32_t requests = 2 * engine.options().max_num_seqs;
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < requests; ++i)
    prompts.push_back(random_prompt(engine, input, static_cast<uint64_t>(i) + 1));
  auto row = offline_throughput(engine, prompts, output, repeats);
  if (!row.ok()) return row;
  row->name = fmt::format("offline_{}/{}", input, output);
  row->tokens_per_second *= static_cast<double>(output) / (input + output);
  return row;
}

Result<SpeedRow> offline_throughput(engine::Engine& engine,
                                    const std::vector<std::vector<int32_t>>& prompts,
                                    int32_t max_tokens, int repeats) {
  std::vector<double> seconds;
  double tokens = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    Progress progress;
    tokens = 0;
    size_t next = 0;
    const auto start = Clock::now();
    while (progress.finished < static_cast<int64_t>(prompts.size())) {
      // The queue is bounded: what it refuses now is offered again after a step.
      while (next < prompts.size()) {
        auto id = engine.submit(greedy_request(prompts[next], max_tokens), record(progress));
        if (!id.ok() && id.status().code() == StatusCode::kResourceExhausted &&
            progress.finished < static_cast<int64_t>(next)) {
          break;
        }
        if (!id.ok()) return id.status();
        tokens += static_cast<double>(prompts[next++].size());
      }
      if (!engine.step() || !progress.error.ok()) break;
    }
    if (!progress.error.ok()) return progress.error;
    tokens += static_cast<double>(progress.tokens);
    seconds.push_back(seconds_between(start, Clock::now()));
  }
  return make_row("offline", tokens, seconds, {});
}

}  // namespace pelton::bench_lib
