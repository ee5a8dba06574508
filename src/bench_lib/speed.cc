#include "bench_lib/speed.h"

#include <algorithm>
#include <utility>

#include "bench_lib/load.h"
#include "bench_lib/rows.h"

namespace pelton::bench_lib {
namespace {

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
    waited_ += now.step_times.timing - before_.step_times.timing;
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

// Steps of a decode row before the clock: the second of a size is captured on a device, which takes
// as long as many steps.
constexpr int32_t kWarmTokens = 4;

// 0 where the limit was not measured.
double arithmetic_seconds(double ops, const Roofline& roofline) {
  return roofline.int8_ops_per_second > 0 ? ops / roofline.int8_ops_per_second : 0.0;
}

// Segments of one run that are timed one after another: all repetitions where the context that they
// add is small beside the depth, which then is computed once.
int timed_segments(int32_t tokens, int32_t depth, int repeats) {
  return int64_t{tokens} * repeats <= depth / 8 ? repeats : 1;
}

struct RepeatedLoad {
  TimedLoad last;  // every run has the same tokens
  std::vector<double> seconds;
};

Result<RepeatedLoad> repeated_load(engine::Engine& engine, const std::vector<Request>& requests,
                                   int repeats) {
  RepeatedLoad loads;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto load = run_load(engine, requests);
    if (!load.ok()) return load.status();
    loads.last = *load;
    loads.seconds.push_back(load->seconds);
  }
  return loads;
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
  std::string name = row_name({.input = tokens, .depth = depth});
  const Bound bound =
      prefill_bound(work_model(engine.config(), engine.plan()), roofline, tokens, depth,
                    static_cast<double>(engine.options().max_num_batched_tokens));
  return make_row(std::move(name), tokens, seconds, bound);
}

int32_t decode_room(int32_t tokens, int32_t sequences, int32_t depth, int repeats) {
  // One token to start with, and as the first of them start the last ones' prompts still run; a
  // spare one keeps every sequence running until the clock is read.
  return kWarmTokens + tokens * timed_segments(tokens, depth, repeats) + 2 + sequences;
}

Result<SpeedRow> decode_speed(engine::Engine& engine, const Roofline& roofline, int32_t tokens,
                              int32_t sequences, int32_t depth, int repeats) {
  std::vector<double> seconds;
  StepFigures figures(engine);
  const int segments = timed_segments(tokens, depth, repeats);
  const int32_t room = decode_room(tokens, sequences, depth, repeats);
  for (int repeat = 0; repeat < repeats / segments; ++repeat) {
    Progress progress;
    for (int32_t sequence = 0; sequence < sequences; ++sequence) {
      const auto seed = static_cast<uint64_t>(repeat * sequences + sequence);
      auto id = engine.submit(greedy_request(random_prompt(engine, std::max(depth, 1), seed), room),
                              record(progress));
      if (!id.ok()) return id.status();
    }
    const auto all_started = [&] { return progress.started == sequences; };
    if (Status s = run_until(engine, progress, all_started); !s.ok()) return s;
    const int64_t warm = progress.tokens + int64_t{kWarmTokens} * sequences;
    if (Status s = run_until(engine, progress, [&] { return progress.tokens >= warm; }); !s.ok())
      return s;
    for (int segment = 0; segment < segments; ++segment) {
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
    }
    if (Status s = run_until(engine, progress, [&] { return progress.finished == sequences; });
        !s.ok()) {
      return s;
    }
  }
  const double context = std::max(depth, 1) + kWarmTokens + tokens * segments / 2.0;
  Bound bound =
      decode_bound(work_model(engine.config(), engine.plan()), roofline, sequences, context);
  bound.seconds *= tokens;
  SpeedRow row = make_row(
      row_name(
          {.kind = RowKind::kDecode, .output = tokens, .sequences = sequences, .depth = depth}),
      static_cast<double>(tokens) * sequences, seconds, bound);
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
  return make_row(row_name({.kind = RowKind::kPrompts, .input = tokens, .sequences = sequences}),
                  static_cast<double>(sequences) * tokens, seconds, bound);
}

Result<SpeedRow> fixed_length_throughput(engine::Engine& engine, const RowSpec& row, int repeats) {
  const int32_t count = row.requests > 0 ? row.requests : 2 * engine.options().max_num_seqs;
  std::vector<Request> requests;
  for (int32_t i = 0; i < count; ++i) {
    requests.push_back(
        greedy_request(random_prompt(engine, row.input, static_cast<uint64_t>(i) + 1), row.output));
  }
  const auto loads = repeated_load(engine, requests, repeats);
  if (!loads.ok()) return loads.status();
  return make_row(row_name(row), static_cast<double>(loads->last.generated_tokens), loads->seconds,
                  {});
}

Result<SpeedRow> offline_throughput(engine::Engine& engine,
                                    const std::vector<std::vector<int32_t>>& prompts,
                                    int32_t max_tokens, int repeats) {
  std::vector<Request> requests;
  for (const std::vector<int32_t>& prompt : prompts)
    requests.push_back(greedy_request(prompt, max_tokens));
  const auto loads = repeated_load(engine, requests, repeats);
  if (!loads.ok()) return loads.status();
  const int64_t tokens = loads->last.prompt_tokens + loads->last.generated_tokens;
  return make_row("offline", static_cast<double>(tokens), loads->seconds, {});
}

}  // namespace pelton::bench_lib
