// The server: routes, access, admission, draining. Owns the threads around one engine.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/chat.h"
#include "server/access.h"
#include "server/admission.h"
#include "server/engine_loop.h"
#include "server/fields.h"
#include "server/generation.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/recent_requests.h"
#include "server/worker_pool.h"
#include "text/output/output_parser.h"

namespace pelton::server {

struct ServiceOptions {
  HttpServerOptions http;
  std::vector<std::string> served_names;     // the first is shown; empty = the model's own
  std::optional<KeyRing> keys;               // unset: everybody may call
  std::vector<std::string> allowed_hosts;    // beside loopback names; "*" = any
  std::vector<std::string> allowed_origins;  // of browsers; none unless named, "*" = any
  int max_queue = 256;
  std::chrono::milliseconds queue_wait{60'000};
  std::chrono::milliseconds drain_timeout{30'000};
  std::chrono::milliseconds step_watchdog{30'000};
  int workers = 2;
  bool page = true;  // the web page at /
  // How the model writes calls and reasoning; unset = as its chat template shows.
  std::optional<text::CallFormat> calls;
  std::optional<text::ReasoningFormat> reasoning;
  Pooling pooling = Pooling::kLast;  // of embeddings that do not say
  std::string version;
  std::function<void(const std::string&)> log;  // one line; from any thread
  // Likewise, a line of JSON for each generation that ended; may be empty.
  std::function<void(const std::string&)> request_log;
  bool vllm_metric_names = false;  // in /metrics beside our own
};

// Bytes that a request's body may have: what was set, else room for a whole context and at least
// kBodyBytes.
size_t body_limit(const HttpLimits& limits, int32_t max_model_len);

class Service final : public HttpHandler, public GenerationHost {
 public:
  // Listens; serves from run() on.
  static Result<std::unique_ptr<Service>> create(engine::Engine& engine, ServiceOptions options);
  ~Service() override;

  uint16_t port() const { return http_->port(); }
  // Until SIGTERM or SIGINT and all that was accepted is answered, or the drain's time is up. An
  // error when the engine is damaged or a second signal cut the drain short.
  Status run();

  std::optional<HttpResponse> refuse(const HttpHead& head) override;
  void handle(std::shared_ptr<HttpExchange> exchange) override;
  std::string error_body(int status, std::string_view message) override;

  EngineLoop& loop() override { return *loop_; }
  WorkerPool& workers() override { return *workers_; }
  Metrics& metrics() override { return metrics_; }
  bool abandon(Generation& generation) override;
  void ended(Generation& generation) override;
  void ready(std::shared_ptr<Generation> generation) override;
  void flush_ready() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Call;  // one request on a worker
  void log_fault(std::string_view request, std::string_view what) const;

  Service(engine::Engine& engine, ServiceOptions options);
  std::optional<ApiError> check_access(const HttpHead& head) const;
  std::optional<ApiError> check_browser(const HttpHead& head) const;
  std::vector<HttpHeader> answer_headers(const HttpHead& head, uint64_t number) const;
  HttpResponse answer_get(const HttpHead& head);
  void respond(HttpExchange& exchange, const std::vector<HttpHeader>& headers,
               HttpResponse response);

  void answer_post(Call& call);
  std::optional<ApiError> generate(Call& call);
  std::optional<ApiError> embed(Call& call);
  std::optional<ApiError> count_tokens(Call& call);
  GenerationPlan make_plan(Call& call, std::unique_ptr<AnswerFormat> format) const;
  void hand_on(Call& call, GenerationPlan plan);
  std::optional<ApiError> tokenize(Call& call);
  std::optional<ApiError> detokenize(Call& call);
  std::optional<ApiError> prompt_ids(Call& call, std::vector<std::vector<int32_t>>* prompts) const;
  std::optional<ApiError> chat_ids(const ApiRequest& request, std::vector<int32_t>* ids) const;
  std::optional<ApiError> check_length(const std::vector<int32_t>& ids, const ApiRequest& request,
                                       std::string_view param) const;
  std::optional<ApiError> check_model(const ApiRequest& request) const;
  std::optional<ApiError> check_tools(const ApiRequest& request) const;
  std::optional<ApiError> settle_sampling(const Call& call, ApiRequest* request) const;
  text::OutputOptions output_options(const ApiRequest& request,
                                     const std::vector<int32_t>& prompt) const;
  AnswerInfo answer_info(const Call& call) const;
  std::unique_ptr<AnswerFormat> make_format(const Call& call,
                                            const std::vector<std::vector<int32_t>>& prompts) const;
  void enter(const std::shared_ptr<Generation>& generation);
  void launch(const std::vector<Admission::Ticket>& tickets);
  void admit_next();
  void log_end(const Generation& generation);
  void refuse_tickets(const std::vector<Admission::Ticket>& tickets, const ApiError& error);
  std::vector<std::shared_ptr<Generation>> all_generations();

  void drain_ready();

  void on_signal();
  void on_damage(std::string_view cause);
  void tick();
  void end_drain(Clock::time_point now);
  std::string models_json() const;
  std::string metrics_text();
  std::string status_json(std::string_view query);
  void remember(const Generation& generation);
  double uptime() const { return std::chrono::duration<double>(Clock::now() - started_).count(); }

  engine::Engine& engine_;
  ServiceOptions options_;
  Metrics metrics_;
  RecentRequests recent_;
  std::optional<engine::ChatFormatter> chat_;
  Status chat_error_;  // why there is no formatter
  const Clock::time_point started_ = Clock::now();
  const int64_t started_wall_;
  std::string id_prefix_;
  std::atomic<uint64_t> next_id_{1};

  std::mutex mutex_;  // of what follows
  Admission admission_;
  std::map<Admission::Ticket, std::shared_ptr<Generation>> generations_;

  std::mutex ready_mutex_;  // of what follows; a generation's own may be held
  std::vector<std::shared_ptr<Generation>> ready_;
  bool ready_posted_ = false;

  std::atomic<bool> draining_{false};
  std::atomic<bool> damaged_{false};
  Clock::time_point drain_since_;  // I/O thread only, as the rest
  Clock::time_point idle_since_;
  bool gave_up_ = false;
  std::vector<std::shared_ptr<Generation>> taken_;  // of ready_, on their way
  Status outcome_;

  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<WorkerPool> workers_;
  std::unique_ptr<EngineLoop> loop_;
};

}  // namespace pelton::server
