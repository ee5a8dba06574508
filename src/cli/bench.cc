#include "cli/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <sstream>
#include <utility>

#include "bench_lib/roofline.h"
#include "bench_lib/speed.h"

namespace pelton::cli {
namespace {

constexpr int32_t kMostTokens = 1 << 20;
constexpr int32_t kMostRepeats = 1000;

bool wants(const BenchOptions& options, const char* row) {
  return std::ranges::find(options.rows, row) != options.rows.end();
}

Status in_range(const char* name, int32_t value, int32_t low, int32_t high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(fmt::format("{} must be in [{}, {}], not {}", name, low, high, value));
}

struct Pair {
  int32_t first = 0;
  int32_t second = 0;
};

// "8x2048", "128/128".
Result<Pair> parse_pair(const char* option, const std::string& text, char separator) {
  Pair pair;
  const char* end = text.data() + text.size();
  const auto [middle, error] = std::from_chars(text.data(), end, pair.first);
  if (error == std::errc() && middle != end && *middle == separator) {
    const auto [stop, wrong] = std::from_chars(middle + 1, end, pair.second);
    const auto fits = [](int32_t n) { return n >= 1 && n <= kMostTokens; };
    if (wrong == std::errc() && stop == end && fits(pair.first) && fits(pair.second)) return pair;
  }
  return invalid_argument(
      fmt::format("{}: '{}' is not two numbers with '{}' between them", option, text, separator));
}

Status check_options(const BenchOptions& options) {
  if (Status s = in_range("-p", options.prompt_tokens, 1, kMostTokens); !s.ok()) return s;
  if (Status s = in_range("-n", options.generated_tokens, 1, kMostTokens); !s.ok()) return s;
  if (Status s = in_range("--depth", options.depth, 0, kMostTokens); !s.ok()) return s;
  if (Status s = in_range("--repeat", options.repeat, 1, kMostRepeats); !s.ok()) return s;
  for (const int32_t batch : options.batches) {
    if (Status s = in_range("--batch", batch, 1, 1024); !s.ok()) return s;
  }
  for (const std::string& row : options.rows) {
    if (row != "pp" && row != "tg" && row != "batch" && row != "offline") {
      return invalid_argument("--rows: '" + row + "' is not one of pp, tg, batch, offline");
    }
  }
  if (!options.save.empty()) {
    return unsupported(
        "--save: the weights of a shape are made where they are used, the same in "
        "every run, and not written");
  }
  for (const std::string& text : options.prefill) {
    const auto pair = parse_pair("--prefill", text, 'x');
    if (!pair.ok()) return pair.status();
    if (Status s = in_range("--prefill", pair->first, 1, 1024); !s.ok()) return s;
  }
  for (const std::string& text : options.lengths) {
    if (const auto pair = parse_pair("--offline", text, '/'); !pair.ok()) return pair.status();
  }
  if (wants(options, "offline") && options.prompts.empty()) {
    return invalid_argument("--rows offline needs --prompts FILE");
  }
  return {};
}

// As large as the rows need and no larger, so that a big model's bench fits where the model does.
void size_engine(const BenchOptions& options, engine::EngineOptions* engine) {
  int32_t sequences = 1;
  if (wants(options, "batch")) {
    for (const int32_t batch : options.batches) sequences = std::max(sequences, batch);
  }
  if (!options.prompts.empty()) sequences = std::max(sequences, 16);
  int32_t longest = 0;
  for (const std::string& text : options.prefill) {
    const Pair pair = *parse_pair("--prefill", text, 'x');
    sequences = std::max(sequences, pair.first);
    longest = std::max(longest, pair.second + 1);
  }
  for (const std::string& text : options.lengths) {
    const Pair pair = *parse_pair("--offline", text, '/');
    sequences = std::max(sequences, engine->cuda ? 256 : 16);
    longest = std::max(longest, pair.first + pair.second);
  }
  if (options.common.max_num_seqs == 0) engine->max_num_seqs = sequences;
  if (options.common.max_num_batched_tokens == 0 && engine->cuda)
    engine->max_num_batched_tokens = 8192;
  if (options.common.max_model_len == 0) {
    const int32_t decode = options.generated_tokens + sequences + 3;
    engine->max_model_len = options.depth + std::max(options.prompt_tokens + 1, decode);
    if (!options.prompts.empty()) engine->max_model_len = std::max(engine->max_model_len, 2048);
    engine->max_model_len = std::max(engine->max_model_len, longest);
  }
  engine->enforce_eager = options.enforce_eager;
  // A cached prompt would be measured as an infinitely fast one.
  engine->enable_prefix_caching = false;
}

using Prompts = std::vector<std::vector<int32_t>>;

Result<Prompts> read_prompts(const engine::Engine& engine, const std::string& path) {
  auto text = read_text(path);
  if (!text.ok()) return text.status();
  std::istringstream lines(*text);
  std::string line;
  Prompts prompts;
  while (std::getline(lines, line)) {
    if (!line.empty()) prompts.push_back(engine.tokenizer()->encode(line, {}));
  }
  if (prompts.empty()) return invalid_argument(path + ": no prompt, one a line is expected");
  return prompts;
}

// Runs the rows that were asked for, in order; `show` sees each as soon as it is there.
Status measure(const BenchOptions& options, const Prompts& prompts, engine::Engine& engine,
               const bench_lib::Roofline& roofline,
               const std::function<Status(const bench_lib::SpeedRow&)>& show) {
  const auto add = [&](Result<bench_lib::SpeedRow> row) {
    return row.ok() ? show(*row) : row.status();
  };
  const int32_t depth = options.depth;
  if (wants(options, "pp")) {
    Status s = add(
        bench_lib::prompt_speed(engine, roofline, options.prompt_tokens, depth, options.repeat));
    if (!s.ok()) return s;
  }
  std::vector<int32_t> batches;
  if (wants(options, "tg")) batches.push_back(1);
  if (wants(options, "batch")) {
    batches.insert(batches.end(), options.batches.begin(), options.batches.end());
  }
  for (const int32_t batch : batches) {
    Status s = add(bench_lib::decode_speed(engine, roofline, options.generated_tokens, batch, depth,
                                           options.repeat));
    if (!s.ok()) return s;
  }
  for (const std::string& text : options.prefill) {
    const Pair pair = *parse_pair("--prefill", text, 'x');
    Status s = add(
        bench_lib::batched_prompt_speed(engine, roofline, pair.first, pair.second, options.repeat));
    if (!s.ok()) return s;
  }
  for (const std::string& text : options.lengths) {
    const Pair pair = *parse_pair("--offline", text, '/');
    Status s =
        add(bench_lib::fixed_length_throughput(engine, pair.first, pair.second, options.repeat));
    if (!s.ok()) return s;
  }
  if (prompts.empty()) return {};
  return add(
      bench_lib::offline_throughput(engine, prompts, options.generated_tokens, options.repeat));
}

double percent(const bench_lib::SpeedRow& row) { return 100.0 * row.tokens_per_second / row.limit; }

Json json_row(const bench_lib::SpeedRow& row) {
  Json json = answer_row(row.name, row.tokens_per_second, "tok/s");
  json["spread"] = row.spread;
  if (row.limit > 0) {
    json["limit"] = row.limit;
    json["percent"] = percent(row);
    json["bound"] = row.memory_bound ? "memory" : "compute";
  }
  if (row.step_seconds >= 0) json["step_ms"] = 1e3 * row.step_seconds;
  if (row.host_seconds >= 0) json["host_us_per_step"] = 1e6 * row.host_seconds;
  if (row.idle_share >= 0) json["gpu_idle_percent"] = 100.0 * row.idle_share;
  return json;
}

std::string device_figures(const bench_lib::SpeedRow& row) {
  if (row.host_seconds < 0) return {};
  return fmt::format(" {:>7.3f} ms | {:>6.1f} us | {:>6.2f} % |", 1e3 * row.step_seconds,
                     1e6 * row.host_seconds, 100.0 * row.idle_share);
}

std::string table_row(const bench_lib::SpeedRow& row) {
  std::string limit = "-";
  std::string of_limit = "-";
  if (row.limit > 0) {
    limit = fmt::format("{:.1f} {}", row.limit, row.memory_bound ? "memory" : "compute");
    of_limit = fmt::format("{:.1f} %", percent(row));
  }
  return fmt::format("| {:<14} | {:>10.2f} | {:>7.1f} % | {:>18} | {:>8} |{}\n", row.name,
                     row.tokens_per_second, 100.0 * row.spread, limit, of_limit,
                     device_figures(row));
}

Result<bench_lib::Roofline> roofline_of(engine::Engine& engine) {
  const auto& backend = engine.options().backend;
  if (backend != nullptr)
    return bench_lib::measure_device_roofline(backend->device(), backend->stream());
  return bench_lib::measure_roofline(engine.pool(), engine.isa());
}

std::string table_head(engine::Engine& engine, const bench_lib::Roofline& roofline) {
  const auto& backend = engine.options().backend;
  const std::string machine =
      backend != nullptr
          ? backend->device().caps().name
          : fmt::format("{} threads, {}", engine.pool().size(), isa_level_name(engine.isa()));
  const std::string limits =
      backend != nullptr
          ? fmt::format("copy {:.0f} GB/s", roofline.read_bytes_per_second / 1e9)
          : fmt::format("read {:.1f} GB/s, int8 {:.0f} GOP/s", roofline.read_bytes_per_second / 1e9,
                        roofline.int8_ops_per_second / 1e9);
  return fmt::format(
      "{}, {}, {:.1f} M parameters\n"
      "measured limits: {}\n\n"
      "| {:<14} | {:>10} | {:>9} | {:>18} | {:>8} |{}\n"
      "| -------------- | ---------: | --------: | -----------------: | -------: |{}\n",
      printable(engine.files().display_name()), machine,
      static_cast<double>(engine.plan().parameters) / 1e6, limits, "test", "tok/s", "spread",
      "limit tok/s", "of limit", backend != nullptr ? "  step      | host      | GPU idle |" : "",
      backend != nullptr ? " ---------: | --------: | -------: |" : "");
}

void warn_of_graphs(const engine::Engine& engine) {
  if (!engine.graph_fault().empty())
    print_error("warning: decode steps are not captured: " + engine.graph_fault());
}

}  // namespace

Status run_bench(const BenchOptions& options) {
  if (Status s = check_options(options); !s.ok()) return s;
  auto engine_opts = engine_options(options.common);
  if (!engine_opts.ok()) return engine_opts.status();
  size_engine(options, &*engine_opts);
  auto loaded = load_engine(options.common, *engine_opts);
  if (!loaded.ok()) return loaded.status();
  engine::Engine& engine = **loaded;
  const auto measured = roofline_of(engine);
  if (!measured.ok()) return measured.status();
  const bench_lib::Roofline& roofline = *measured;
  Prompts prompts;
  if (!options.prompts.empty()) {
    auto read = read_prompts(engine, options.prompts);
    if (!read.ok()) return read.status();
    prompts = std::move(read).value();
  }
  if (!options.common.json) {
    if (Status s = print(table_head(engine, roofline)); !s.ok()) return s;
    Status s = measure(options, prompts, engine, roofline,
                       [](const bench_lib::SpeedRow& row) { return print(table_row(row)); });
    warn_of_graphs(engine);
    return s;
  }
  Json answer = answer_header("bench", engine.files(), engine.options());
  const auto append = [&](const bench_lib::SpeedRow& row) {
    answer["rows"].push_back(json_row(row));
    return Status();
  };
  if (Status s = measure(options, prompts, engine, roofline, append); !s.ok()) return s;
  warn_of_graphs(engine);
  answer["roofline"] = {{"read_bytes_per_second", roofline.read_bytes_per_second},
                        {"int8_ops_per_second", roofline.int8_ops_per_second}};
  return print(answer.dump() + "\n");
}

}  // namespace pelton::cli
