#include "cli/serve.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "base/file.h"
#include "cli/plan.h"
#include "cli/self_check.h"
#include "server/service.h"
#include "text/output/output_parser.h"

namespace pelton::cli {
namespace {

constexpr uint64_t kMaxKeyFile = 1u << 20;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

void log_line(const std::string& line) {
  std::fprintf(stderr, "pelton: %s\n", printable(line).c_str());
}

Status load_tls(const ServeOptions& options, server::HttpServerOptions* http) {
  if (options.ssl_certfile.empty() && options.ssl_keyfile.empty()) return {};
  if (options.ssl_certfile.empty())
    return invalid_argument("--ssl-keyfile: needs --ssl-certfile beside it");
  const std::string& key = options.ssl_keyfile.empty() ? options.ssl_certfile : options.ssl_keyfile;
  auto tls = server::TlsContext::load(options.ssl_certfile, key);
  if (!tls.ok()) return tls.status();
  http->tls = std::move(tls).value();
  return {};
}

// Appends lines; each is written whole, whichever thread it comes from.
Result<std::function<void(const std::string&)>> open_request_log(const std::string& path) {
  struct Log {
    std::mutex mutex;
    std::unique_ptr<FILE, int (*)(FILE*)> file{nullptr, std::fclose};
  };
  const auto log = std::make_shared<Log>();
  if (path != "-") {
    log->file.reset(std::fopen(path.c_str(), "a"));
    if (log->file == nullptr) return io_error("--request-log: cannot write " + printable(path));
  }
  return [log](const std::string& line) {
    const std::lock_guard lock(log->mutex);
    FILE* file = log->file == nullptr ? stderr : log->file.get();
    std::fprintf(file, "%s\n", line.c_str());
    std::fflush(file);
  };
}

// The model's whole context, and no more memory than the machine has left.
Result<engine::EngineOptions> serving_options(const ServeOptions& options,
                                              const engine::ModelFiles& files) {
  auto engine = engine_options(options.common);
  if (!engine.ok()) return engine.status();
  if (options.batching != "continuous" && options.batching != "static")
    return invalid_argument("--batching: '" + options.batching + "' is not continuous or static");
  if (options.tensor_parallel_size != 1)
    return unsupported("--tensor-parallel-size: this build runs on one device");
  engine->enforce_eager = options.enforce_eager;
  engine->static_batching = options.batching == "static";
  engine->max_waiting = std::max(engine->max_waiting, options.max_queue);
  if (options.common.max_model_len == 0)
    engine->max_model_len = files.config().max_position_embeddings;
  if (engine->cuda) {
    // A step of many sequences costs a GPU little more than one of few.
    if (options.common.max_num_seqs == 0) engine->max_num_seqs = 256;
    if (options.common.max_num_batched_tokens == 0) engine->max_num_batched_tokens = 8192;
    engine->gpu_memory_utilization = options.gpu_memory_utilization;
  } else if (options.common.memory.empty()) {
    engine->memory_limit = machine_memory().available / 10 * 9;
  }
  return engine;
}

Status read_parsers(const ServeOptions& options, server::ServiceOptions* service) {
  if (options.tool_call_parser != "auto") {
    service->calls = text::call_format(options.tool_call_parser);
    if (!service->calls)
      return invalid_argument("--tool-call-parser: '" + options.tool_call_parser +
                              "' is not one of auto, " + text::call_format_names());
  }
  if (options.reasoning_parser != "auto") {
    service->reasoning = text::reasoning_format(options.reasoning_parser);
    if (!service->reasoning)
      return invalid_argument("--reasoning-parser: '" + options.reasoning_parser +
                              "' is not one of auto, " + text::reasoning_format_names());
  }
  if (options.pooling != "last" && options.pooling != "mean")
    return invalid_argument("--pooling: '" + options.pooling + "' is not last or mean");
  service->pooling = options.pooling == "mean" ? Pooling::kMean : Pooling::kLast;
  return {};
}

// `own_key`: one more key beside those that were given, if any were.
Status read_keys(const ServeOptions& options, const std::string& own_key,
                 server::ServiceOptions* service) {
  if (options.api_keys.empty() && options.api_key_file.empty()) return {};
  std::string lines;
  if (!options.api_key_file.empty()) {
    auto text = read_file(options.api_key_file, kMaxKeyFile);
    if (!text.ok()) return text.status();
    lines = *text + "\n";
  }
  for (const std::string& key : options.api_keys) lines += key + "\n";
  auto keys = server::KeyRing::parse(lines + own_key);
  if (!keys.ok())
    return keys.status().with_context(options.api_key_file.empty() ? "--api-key"
                                                                   : options.api_key_file);
  service->keys = std::move(keys).value();
  return {};
}

Result<server::ServiceOptions> service_options(const ServeOptions& options, const char* version,
                                               const std::string& own_key) {
  server::ServiceOptions service;
  service.http.host = options.host;
  service.http.port = static_cast<uint16_t>(options.port);
  server::HttpLimits& limits = service.http.limits;
  limits.connections = options.max_connections;
  limits.header_timeout = milliseconds(options.header_timeout);
  limits.body_timeout = milliseconds(options.body_timeout);
  limits.idle_timeout = milliseconds(options.idle_timeout);
  service.step_watchdog = milliseconds(options.step_watchdog);
  if (Status s = load_tls(options, &service.http); !s.ok()) return s;
  service.served_names = options.served_model_name;
  service.allowed_hosts = options.allowed_hosts;
  service.allowed_origins = options.allowed_origins;
  service.max_queue = options.max_queue;
  service.queue_wait = milliseconds(options.queue_timeout);
  service.drain_timeout = milliseconds(options.drain_timeout);
  service.workers = options.http_workers;
  service.page = !options.disable_page;
  service.version = version;
  service.log = log_line;
  if (options.metrics_names != "pelton" && options.metrics_names != "vllm")
    return invalid_argument("--metrics-names: '" + options.metrics_names +
                            "' is not pelton or vllm");
  service.vllm_metric_names = options.metrics_names == "vllm";
  if (!options.request_log.empty()) {
    auto log = open_request_log(options.request_log);
    if (!log.ok()) return log.status();
    service.request_log = std::move(log).value();
  }
  if (Status s = read_parsers(options, &service); !s.ok()) return s;
  if (Status s = read_keys(options, own_key, &service); !s.ok()) return s;
  return service;
}

std::string random_key() {
  std::random_device device;
  return fmt::format("self-test-{:08x}{:08x}", device(), device());
}

// Serves while it asks itself; ends as SIGTERM ends it.
Status test_service(server::Service& service, const SelfTestTarget& target) {
  Status served;
  std::thread server([&] { served = service.run(); });
  const Status tested = run_self_test(target);
  std::raise(SIGTERM);
  server.join();
  return tested.ok() ? served : tested;
}

}  // namespace

Status run_serve(ServeOptions options, const char* version) {
  // Who reads the log may go away; requests go on.
  std::signal(SIGPIPE, SIG_IGN);
  const std::string own_key = options.self_test ? random_key() : std::string();
  if (options.self_test) {
    options.host = "127.0.0.1";
    options.port = 0;
  }
  auto service_opts = service_options(options, version, own_key);
  if (!service_opts.ok()) return service_opts.status();
  if (options.self_test) service_opts->http.tls.reset();  // it asks in plain words
  auto files = open_files(options.common);
  if (!files.ok()) return files.status();
  auto engine_opts = serving_options(options, **files);
  if (!engine_opts.ok()) return engine_opts.status();
  auto engine = engine::Engine::load(std::move(files).value(), *engine_opts);
  if (!engine.ok()) return engine.status();
  for (const std::string& warning : (*engine)->warnings()) print_error("warning: " + warning);
  if (!options.left_alone.empty())
    print_error(fmt::format("warning: left alone, because they need nothing here: {}",
                            fmt::join(options.left_alone, ", ")));
  auto service = server::Service::create(**engine, std::move(service_opts).value());
  if (!service.ok()) return service.status();
  if (options.self_test) {
    const bool keyed = !options.api_key_file.empty() || !options.api_keys.empty();
    const auto chat = engine::ChatFormatter::create((*engine)->files(), (*engine)->tokenizer());
    return test_service(
        **service, {.port = (*service)->port(), .key = keyed ? own_key : "", .chat = chat.ok()});
  }
  log_line(fmt::format(
      "{} on {}://{}:{}/v1, context {}, {} at once", printable((*engine)->files().display_name()),
      options.ssl_certfile.empty() ? "http" : "https", options.host, (*service)->port(),
      (*engine)->options().max_model_len, (*engine)->options().max_num_seqs));
  return (*service)->run();
}

}  // namespace pelton::cli
