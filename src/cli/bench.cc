#include "cli/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <utility>

#include "bench_lib/batching.h"
#include "bench_lib/roofline.h"
#include "bench_lib/rows.h"
#include "bench_lib/speed.h"

namespace pelton::cli {
namespace {

constexpr int32_t kMostTokens = 1 << 20;
constexpr int32_t kMostRepeats = 1000;

using bench_lib::RowKind;
using bench_lib::RowSpec;
using Rows = std::vector<RowSpec>;

Status in_range(const char* name, int32_t value, int32_t low, int32_t high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(fmt::format("{} must be in [{}, {}], not {}", name, low, high, value));
}

Status check_options(const BenchOptions& options) {
  if (Status s = in_range("-p", options.prompt_tokens, 1, kMostTokens); !s.ok()) return s;
  if (Status s = in_range("-n", options.generated_tokens, 1, kMostTokens); !s.ok()) return s;
  if (Status s = in_range("--depth", options.depth, 0, kMostTokens); !s.ok()) return s;
  if (Status s = in_range("--repeat", options.repeat, 1, kMostRepeats); !s.ok()) return s;
  for (const int32_t batch : options.batches) {
    if (Status s = in_range("--batch", batch, 1, 1024); !s.ok()) return s;
  }
  if (!options.save.empty()) {
    return unsupported(
        "--save: the weights of a shape are made where they are used, the same in "
        "every run, and not written");
  }
  const bool offline = std::ranges::find(options.rows, "offline") != options.rows.end();
  if (offline && options.prompts.empty())
    return invalid_argument("--rows offline needs --prompts FILE");
  return {};
}

// Words stand for the rows that -p, -n, --depth and --batch describe; everything else is a name.
Status add_rows(const BenchOptions& options, const std::string& word, Rows* rows) {
  RowSpec decode{
      .kind = RowKind::kDecode, .output = options.generated_tokens, .depth = options.depth};
  if (word == "pp") {
    rows->push_back({.input = options.prompt_tokens, .depth = options.depth});
  } else if (word == "tg") {
    rows->push_back(decode);
  } else if (word == "batch") {
    for (const int32_t batch : options.batches) {
      decode.sequences = batch;
      rows->push_back(decode);
    }
  } else if (word != "offline") {  // which is of --prompts
    auto row = bench_lib::parse_row(word);
    if (!row.ok()) {
      return invalid_argument("--rows: pp, tg, batch, offline or the names of rows: " +
                              row.status().message());
    }
    rows->push_back(*row);
  }
  return {};
}

Result<Rows> rows_of(const BenchOptions& options) {
  Rows rows;
  for (const std::string& word : options.rows) {
    if (Status s = add_rows(options, word, &rows); !s.ok()) return s;
  }
  const auto named = [&](const char* option, const char* prefix, RowKind kind,
                         const std::vector<std::string>& texts) -> Status {
    for (const std::string& text : texts) {
      auto row = bench_lib::parse_row(prefix + text);
      if (!row.ok() || row->kind != kind) {
        return invalid_argument(
            fmt::format("{}: '{}' is not two numbers as in the example", option, text));
      }
      rows.push_back(*row);
    }
    return {};
  };
  if (Status s = named("--prefill", "pp", RowKind::kPrompts, options.prefill); !s.ok()) return s;
  if (Status s = named("--offline", "offline_", RowKind::kOffline, options.lengths); !s.ok())
    return s;
  return rows;
}

// What a row asks of the engine.
struct RowNeeds {
  int32_t sequences = 1;
  int32_t context = 0;
};

RowNeeds needs_of(const RowSpec& row, int repeats, bool cuda, int32_t block_size) {
  switch (row.kind) {
    case RowKind::kPrompt:
    case RowKind::kPrompts:
      return {row.sequences, row.depth + row.input + 1};
    case RowKind::kDecode:
      // The scheduler admits a sequence where every running one keeps a free block to go on with,
      // and a row's sequences must all run at once.
      return {row.sequences,
              std::max(row.depth, 1) +
                  bench_lib::decode_room(row.output, row.sequences, row.depth, repeats) +
                  block_size};
    case RowKind::kOffline: {
      // On a GPU a step of more sequences costs little more, as far as the cache holds them.
      const int32_t at_once = cuda ? 1024 : 16;
      return {row.requests > 0 ? std::min(at_once, row.requests) : at_once, row.input + row.output};
    }
    case RowKind::kContinuous:  // on engines of their own
    case RowKind::kStatic:
    case RowKind::kBatching:
      return {1, bench_lib::batching_context(row)};
  }
  return {};
}

// As large as the rows need and no larger, so that a big model's bench fits where the model does.
// `positions`: of the model.
Status size_engine(const BenchOptions& options, const Rows& rows, int32_t positions,
                   engine::EngineOptions* engine) {
  RowNeeds most;
  if (!options.prompts.empty()) most = {16, std::min(2048, positions)};
  for (const RowSpec& row : rows) {
    const RowNeeds needs = needs_of(row, options.repeat, engine->cuda, engine->block_size);
    most.sequences = std::max(most.sequences, needs.sequences);
    most.context = std::max(most.context, needs.context);
  }
  if (options.common.max_num_seqs == 0) engine->max_num_seqs = most.sequences;
  if (options.common.max_num_batched_tokens == 0 && engine->cuda)
    engine->max_num_batched_tokens = 8192;
  if (options.common.max_model_len == 0) engine->max_model_len = most.context;
  if (options.common.max_model_len == 0 && most.context > positions) {
    return invalid_argument(
        fmt::format("the rows need a context of {} tokens, and the model has {} positions: lower "
                    "-p, -n, --depth or --batch, or choose --rows",
                    most.context, positions));
  }
  engine->max_waiting = std::max(engine->max_waiting, most.sequences);
  engine->enforce_eager = options.enforce_eager;
  // A cached prompt would be measured as an infinitely fast one.
  engine->enable_prefix_caching = false;
  return {};
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

bool has_engines_of_its_own(const RowSpec& row) {
  return row.kind == RowKind::kContinuous || row.kind == RowKind::kStatic ||
         row.kind == RowKind::kBatching;
}

using Show = std::function<Status(const bench_lib::SpeedRow&)>;

Result<bench_lib::SpeedRow> speed_of(const RowSpec& row, int repeats, engine::Engine& engine,
                                     const bench_lib::Roofline& roofline) {
  switch (row.kind) {
    case RowKind::kPrompt:
      return bench_lib::prompt_speed(engine, roofline, row.input, row.depth, repeats);
    case RowKind::kPrompts:
      return bench_lib::batched_prompt_speed(engine, roofline, row.sequences, row.input, repeats);
    case RowKind::kDecode:
      return bench_lib::decode_speed(engine, roofline, row.output, row.sequences, row.depth,
                                     repeats);
    default:
      return bench_lib::fixed_length_throughput(engine, row, repeats);
  }
}

// Runs the rows in order; `show` sees each as soon as it is there.
Status measure(const BenchOptions& options, const Rows& rows, const Prompts& prompts,
               engine::Engine& engine, const bench_lib::Roofline& roofline, const Show& show) {
  for (const RowSpec& row : rows) {
    if (has_engines_of_its_own(row)) {
      const auto parts = bench_lib::batching_speed(engine, row);
      if (!parts.ok()) return parts.status();
      for (const bench_lib::SpeedRow& one : *parts) {
        if (Status s = show(one); !s.ok()) return s;
      }
      continue;
    }
    const auto one = speed_of(row, options.repeat, engine, roofline);
    if (!one.ok()) return one.status();
    if (Status s = show(*one); !s.ok()) return s;
  }
  if (prompts.empty()) return {};
  const auto together =
      bench_lib::offline_throughput(engine, prompts, options.generated_tokens, options.repeat);
  return together.ok() ? show(*together) : together.status();
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
  if (row.gain > 0) json["gain"] = row.gain;
  return json;
}

std::string device_figures(const bench_lib::SpeedRow& row) {
  if (row.gain > 0) return fmt::format(" {:.2f} times static batching", row.gain);
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
  if (backend != nullptr) return bench_lib::measure_device_roofline(*backend);
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

// All rows in one object, or with --json-lines the object without its rows and then a line a row.
Status measure_as_json(const BenchOptions& options, const Rows& rows, const Prompts& prompts,
                       engine::Engine& engine, const bench_lib::Roofline& roofline) {
  Json answer = answer_header("bench", engine.files(), engine.options());
  answer["roofline"] = {{"read_bytes_per_second", roofline.read_bytes_per_second},
                        {"int8_ops_per_second", roofline.int8_ops_per_second}};
  if (options.json_lines) {
    if (Status s = print(answer.dump() + "\n"); !s.ok()) return s;
  }
  Status s = measure(options, rows, prompts, engine, roofline,
                     [&](const bench_lib::SpeedRow& row) -> Status {
                       if (options.json_lines) return print(json_row(row).dump() + "\n");
                       answer["rows"].push_back(json_row(row));
                       return {};
                     });
  if (!s.ok()) return s;
  warn_of_graphs(engine);
  return options.json_lines ? Status() : print(answer.dump() + "\n");
}

}  // namespace

Status run_bench(const BenchOptions& options) {
  if (Status s = check_options(options); !s.ok()) return s;
  const auto rows = rows_of(options);
  if (!rows.ok()) return rows.status();
  auto engine_opts = engine_options(options.common);
  if (!engine_opts.ok()) return engine_opts.status();
  {
    const auto files = open_files(options.common);
    if (!files.ok()) return files.status();
    const int32_t positions = (*files)->config().max_position_embeddings;
    if (Status s = size_engine(options, *rows, positions, &*engine_opts); !s.ok()) return s;
  }
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
  if (options.common.json || options.json_lines)
    return measure_as_json(options, *rows, prompts, engine, roofline);
  if (Status s = print(table_head(engine, roofline)); !s.ok()) return s;
  Status s = measure(options, *rows, prompts, engine, roofline,
                     [](const bench_lib::SpeedRow& row) { return print(table_row(row)); });
  warn_of_graphs(engine);
  return s;
}

}  // namespace pelton::cli
