#include "cli/bench_serve.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <memory>
#include <utility>

#include "base/file.h"
#include "bench_serve/arrivals.h"
#include "bench_serve/client.h"
#include "bench_serve/summary.h"
#include "cli/common.h"

namespace pelton::cli {
namespace {

using bench_serve::Distribution;
using bench_serve::PlannedRequest;
using bench_serve::Prompt;
using bench_serve::Record;
using bench_serve::Summary;

constexpr size_t kMaxKeyFile = 1 << 20;
constexpr double kListTimeout = 10;
constexpr int kMostConnections = 1 << 16;

// What a run needs, worked out of the options before anything is sent.
struct Setup {
  bench_serve::LoadOptions load;
  bench_serve::BodyOptions body;
  bench_serve::Goals goals;
  std::vector<PlannedRequest> requests;
};

Status check_options(const BenchServeOptions& options) {
  if (options.endpoint != "completions" && options.endpoint != "chat")
    return invalid_argument("--endpoint: '" + options.endpoint + "' is not completions or chat");
  if (options.max_concurrency < 0 || options.max_concurrency > kMostConnections)
    return invalid_argument(fmt::format("--max-concurrency must be in [0, {}]", kMostConnections));
  if (!(options.timeout > 0) || options.timeout > 86400)
    return invalid_argument("--timeout must be in (0, 86400] seconds");
  if (options.warmups < 0 || options.warmups > 10000)
    return invalid_argument("--num-warmups must be in [0, 10000]");
  if (!options.token_ids.empty() && options.endpoint == "chat")
    return invalid_argument("--token-ids: chats are made of text");
  return {};
}

Status read_token_ids(const std::string& text, bench_serve::WorkloadOptions* workload) {
  if (text.empty()) return {};
  const char* end = text.data() + text.size();
  const auto low = std::from_chars(text.data(), end, workload->first_id);
  const bool dash = low.ec == std::errc() && low.ptr != end && *low.ptr == '-';
  if (dash) {
    const auto high = std::from_chars(low.ptr + 1, end, workload->last_id);
    if (high.ec == std::errc() && high.ptr == end && workload->first_id >= 0 &&
        workload->last_id >= std::max(1, workload->first_id))
      return {};
  }
  return invalid_argument("--token-ids: '" + text + "' is not LOW-HIGH, as 1000-2000");
}

Status read_key(const std::string& path, std::string* key) {
  if (path.empty()) return {};
  auto text = read_file(path, kMaxKeyFile);
  if (!text.ok()) return text.status();
  auto read = bench_serve::parse_api_key(*text);
  if (!read.ok()) return read.status().with_context(path);
  *key = std::move(read).value();
  return {};
}

// The first model that the server lists.
Result<std::string> find_model(const bench_serve::Target& target) {
  auto text = bench_serve::http_get(target, "/v1/models", kListTimeout);
  if (!text.ok()) return text.status();
  const auto list = Json::parse(*text);
  if (list.ok()) {
    const Json* data = list->find("data");
    const Json* id = data != nullptr && data->is_array() && data->size() > 0
                         ? data->elements().front().find("id")
                         : nullptr;
    if (id != nullptr && id->is_string()) return id->as_string();
  }
  return data_loss("/v1/models lists no model; name one with --model");
}

Result<std::vector<Prompt>> prompts_of(const BenchServeOptions& options) {
  bench_serve::WorkloadOptions workload = options.workload;
  if (Status s = read_token_ids(options.token_ids, &workload); !s.ok()) return s;
  auto made = bench_serve::make_workload(workload);  // also of a file: it checks the options
  if (!made.ok() || bench_serve::is_built_in(workload.dataset)) return made;
  if (workload.prefix_len > 0)
    return invalid_argument("--prefix-len: a file's prompts stay as they are");
  auto text = read_text(workload.dataset);
  if (!text.ok()) return text.status();
  return bench_serve::read_dataset(*text, workload.dataset, workload);
}

Result<Setup> prepare(const BenchServeOptions& options) {
  if (Status s = check_options(options); !s.ok()) return s;
  Setup setup;
  auto target = bench_serve::parse_url(options.url);
  if (!target.ok()) return target.status();
  if (Status s = read_key(options.api_key_file, &target->api_key); !s.ok()) return s;
  if (!target->https && (options.insecure || !options.ca_file.empty()))
    return invalid_argument("--cacert and --insecure: the URL is not https");
  target->ca_file = options.ca_file;
  target->insecure = options.insecure;
  auto goals = bench_serve::parse_goals(options.goodput);
  if (!goals.ok()) return goals.status();
  auto prompts = prompts_of(options);
  if (!prompts.ok()) return prompts.status();
  const bench_serve::ArrivalOptions arrivals{options.request_rate, options.burstiness,
                                             options.workload.seed};
  auto times = bench_serve::arrival_times(arrivals, static_cast<int>(prompts->size()));
  if (!times.ok()) return times.status();
  if (!options.extra_body.empty()) {
    auto extra = Json::parse(options.extra_body);
    if (!extra.ok() || !extra->is_object())
      return invalid_argument("--extra-body: a JSON object is expected");
    setup.body.extra = std::move(extra).value();
  }
  setup.body.model = options.model;
  if (options.model.empty()) {
    auto found = find_model(*target);
    if (!found.ok()) return found.status();
    setup.body.model = std::move(found).value();
  }
  setup.body.chat = setup.load.chat = options.endpoint == "chat";
  setup.body.ignore_eos = options.ignore_eos;
  setup.body.temperature = options.temperature;
  setup.load.target = std::move(target).value();
  setup.load.max_concurrency = options.max_concurrency;
  setup.load.timeout_s = options.timeout;
  setup.goals = *goals;
  for (size_t i = 0; i < prompts->size(); ++i) {
    const Prompt& prompt = (*prompts)[i];
    setup.requests.push_back({.due = (*times)[i],
                              .body = bench_serve::request_body(prompt, setup.body),
                              .planned_tokens = prompt.planned_tokens,
                              .shares_prefix = prompt.shares_prefix});
  }
  return setup;
}

// Requests that only warm the server: the first ones' bodies, as many at once as the run will have.
Status warm_up(const BenchServeOptions& options, const Setup& setup) {
  if (options.warmups == 0) return {};
  std::vector<PlannedRequest> requests;
  for (int i = 0; i < options.warmups; ++i)
    requests.push_back(
        {.body = setup.requests[static_cast<size_t>(i) % setup.requests.size()].body});
  auto records = bench_serve::run_load(setup.load, requests);
  return records.status();
}

std::vector<std::pair<std::string, const Distribution*>> latencies(const Summary& s) {
  return {{"ttft", &s.ttft}, {"tpot", &s.tpot}, {"itl", &s.itl}, {"e2el", &s.e2e}};
}

std::string counting(const Summary& s) {
  if (s.counted_by_server == s.completed) return "the server's usage";
  if (s.counted_by_server == 0) return "pieces of text, as the server reports no usage";
  return fmt::format("the server's usage for {} of {} answers, pieces of text for the others",
                     s.counted_by_server, s.completed);
}

Json distribution_json(const Distribution& d) {
  return {{"count", d.count},     {"mean", 1e3 * d.mean}, {"std", 1e3 * d.deviation},
          {"min", 1e3 * d.least}, {"p50", 1e3 * d.p50},   {"p90", 1e3 * d.p90},
          {"p95", 1e3 * d.p95},   {"p99", 1e3 * d.p99},   {"max", 1e3 * d.most}};
}

Json config_json(const BenchServeOptions& options) {
  const bench_serve::WorkloadOptions& w = options.workload;
  Json json;
  json["url"] = options.url;
  json["endpoint"] = options.endpoint;
  json["dataset"] = w.dataset;
  json["num_prompts"] = w.count;
  json["input_len"] = w.input_len;
  json["output_len"] = w.output_len;
  json["output_cap"] = w.output_cap;
  json["prefix_len"] = w.prefix_len;
  json["prefix_share"] = w.prefix_share;
  json["prefix_count"] = w.prefix_count;
  json["token_ids"] = options.token_ids;
  json["request_rate"] = options.request_rate > 0 ? Json(options.request_rate) : Json(nullptr);
  json["burstiness"] = options.burstiness;
  json["max_concurrency"] =
      options.max_concurrency > 0 ? Json(options.max_concurrency) : Json(nullptr);
  json["temperature"] = options.temperature;
  json["ignore_eos"] = options.ignore_eos;
  json["seed"] = w.seed;
  return json;
}

Json answer_json(const BenchServeOptions& options, const Setup& setup, const Summary& s) {
  Json answer;
  answer["schema"] = "pelton.bench-serve.1";
  answer["model"] = {{"name", setup.body.model}};
  answer["machine"] = machine_json(cpu_features().best_level(), 0);
  Json rows = Json::array();
  Json latency = Json::object();
  rows.push_back(answer_row("request_throughput", s.per_second(s.completed), "req/s"));
  rows.push_back(
      answer_row("output_throughput", s.per_second(static_cast<double>(s.output_tokens)), "tok/s"));
  rows.push_back(answer_row("total_token_throughput",
                            s.per_second(static_cast<double>(s.prompt_tokens + s.output_tokens)),
                            "tok/s"));
  if (setup.goals.any())
    rows.push_back(answer_row("request_goodput", s.per_second(s.good), "req/s"));
  for (const auto& [name, d] : latencies(s)) {
    rows.push_back(answer_row(name + "_p50", 1e3 * d->p50, "ms"));
    rows.push_back(answer_row(name + "_p99", 1e3 * d->p99, "ms"));
    latency[name] = distribution_json(*d);
  }
  answer["rows"] = std::move(rows);
  answer["latency_ms"] = std::move(latency);
  answer["config"] = config_json(options);
  answer["duration_s"] = s.seconds;
  answer["most_at_once"] = s.most_at_once;
  Json requests;
  requests["sent"] = s.requests;
  requests["completed"] = s.completed;
  requests["failed"] = s.requests - s.completed;
  requests["good"] = setup.goals.any() ? Json(s.good) : Json(nullptr);
  requests["errors"] = Json::object();
  for (const auto& [kind, count] : s.errors) requests["errors"][kind] = count;
  answer["requests"] = std::move(requests);
  answer["tokens"] = {{"prompt", s.prompt_tokens},
                      {"cached", s.cached_tokens},
                      {"output", s.output_tokens},
                      {"counted_by_server", s.counted_by_server == s.completed}};
  return answer;
}

std::string table(const Setup& setup, const Summary& s) {
  std::string out;
  const auto line = [&](const char* name, const std::string& value) {
    out += fmt::format("{:<22} {}\n", name, value);
  };
  line("model", printable(setup.body.model));
  line("requests", fmt::format("{} completed, {} failed, {} at once at most", s.completed,
                               s.requests - s.completed, s.most_at_once));
  for (const auto& [kind, count] : s.errors) line("  failed", fmt::format("{} {}", count, kind));
  line("duration", fmt::format("{:.2f} s", s.seconds));
  line("prompt tokens", fmt::format("{}, {} of them cached", s.prompt_tokens, s.cached_tokens));
  line("output tokens", fmt::format("{}, by {}", s.output_tokens, counting(s)));
  line("request throughput", fmt::format("{:.2f} req/s", s.per_second(s.completed)));
  line("output throughput",
       fmt::format("{:.2f} tok/s", s.per_second(static_cast<double>(s.output_tokens))));
  line("total throughput",
       fmt::format("{:.2f} tok/s",
                   s.per_second(static_cast<double>(s.prompt_tokens + s.output_tokens))));
  if (setup.goals.any())
    line("goodput", fmt::format("{:.2f} req/s, {} requests", s.per_second(s.good), s.good));
  out += fmt::format(
      "\n| {:<5} | {:>10} | {:>10} | {:>10} | {:>10} | {:>10} | {:>10} |\n"
      "| ----- | ---------: | ---------: | ---------: | ---------: | ---------: | "
      "---------: |\n",
      "ms", "mean", "p50", "p90", "p95", "p99", "max");
  for (const auto& [name, d] : latencies(s)) {
    out += fmt::format(
        "| {:<5} | {:>10.2f} | {:>10.2f} | {:>10.2f} | {:>10.2f} | {:>10.2f} | "
        "{:>10.2f} |\n",
        name, 1e3 * d->mean, 1e3 * d->p50, 1e3 * d->p90, 1e3 * d->p95, 1e3 * d->p99, 1e3 * d->most);
  }
  return out;
}

Status write_csv(const std::string& path, const std::string& text) {
  if (path.empty()) return {};
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "w"), std::fclose);
  if (file == nullptr) return io_error("--csv: cannot write " + printable(path));
  const bool whole = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (!whole || std::fflush(file.get()) != 0)
    return io_error("--csv: cannot write all of " + printable(path));
  return {};
}

// One example of each kind of error.
void tell_errors(const std::vector<Record>& records, const Summary& summary) {
  for (const auto& [kind, count] : summary.errors) {
    const auto of_kind = [&, &k = kind](const Record& r) {
      return !r.ok() && bench_serve::error_kind(r) == k;
    };
    const auto first = std::ranges::find_if(records, of_kind);
    print_error(fmt::format("{} of {} requests: {}: {}", count, summary.requests, kind,
                            printable(first->detail)));
  }
}

}  // namespace

Status run_bench_serve(const BenchServeOptions& options) {
  auto setup = prepare(options);
  if (!setup.ok()) return setup.status();
  if (Status s = warm_up(options, *setup); !s.ok()) return s;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const size_t all = setup->requests.size();
  if (terminal) {
    setup->load.progress = [all](int ended) { std::fprintf(stderr, "\r%d of %zu ", ended, all); };
  }
  auto records = bench_serve::run_load(setup->load, setup->requests);
  if (terminal) std::fprintf(stderr, "\r\033[K");
  if (!records.ok()) return records.status();
  const Summary summary = bench_serve::summarize(*records, setup->goals);
  tell_errors(*records, summary);
  if (Status s = write_csv(options.csv, bench_serve::csv(*records)); !s.ok()) return s;
  const std::string answer =
      options.json ? answer_json(options, *setup, summary).dump() + "\n" : table(*setup, summary);
  if (Status s = print(answer); !s.ok()) return s;
  if (summary.completed > 0) return {};
  return io_error(fmt::format("all {} requests failed", summary.requests));
}

}  // namespace pelton::cli
