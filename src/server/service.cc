#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <random>
#include <utility>

#include "base/check.h"
#include "server/json_writer.h"
#include "server/page.h"

namespace pelton::server {
namespace {

int64_t wall_milliseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

int64_t wall_seconds() { return wall_milliseconds() / 1000; }

bool contains(const std::vector<std::string>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// What a client calls its request, as far as it may stand in a header again.
std::string cleaned_id(std::string_view id) {
  std::string out;
  for (const char c : id.substr(0, 128)) {
    if (c > 0x20 && c < 0x7F) out += c;
  }
  return out;
}

constexpr std::string_view kModelPrefix = "/v1/models/";

bool is_page(std::string_view path) {
  const auto files = page_files();
  return std::any_of(files.begin(), files.end(), [&](const PageFile& f) { return f.path == path; });
}

// Whom no key is asked of. The page holds nothing secret and asks for a key itself.
bool is_public(const HttpHead& head) {
  return head.path == "/health" || head.path == "/ready" || is_page(head.path);
}

}  // namespace

size_t body_limit(const HttpLimits& limits, int32_t max_model_len) {
  // Eight bytes a token, four times over.
  const size_t context = size_t{32} * static_cast<size_t>(max_model_len);
  return limits.body_bytes.value_or(std::max(kBodyBytes, context));
}

Service::Service(engine::Engine& engine, ServiceOptions options)
    : engine_(engine),
      options_(std::move(options)),
      started_wall_(wall_seconds()),
      admission_(
          {.max_running = 0, .max_queue = options_.max_queue, .max_wait = options_.queue_wait}) {
  // A few more than run at once, so that the engine fills a place in the step after it is free.
  const int32_t seqs = engine.options().max_num_seqs;
  // A static batch forms of what waits inside, at once.
  const int32_t beside = engine.options().static_batching ? seqs : std::max(2, seqs / 4);
  admission_ = Admission({.max_running = seqs + beside,
                          .max_queue = options_.max_queue,
                          .max_wait = options_.queue_wait});
  if (options_.keys) {
    for (size_t i = 0; i < options_.keys->weights().size(); ++i)
      admission_.set_weight(static_cast<int>(i) + 1, options_.keys->weights()[i]);
  }
  if (options_.served_names.empty()) options_.served_names = {engine.files().display_name()};
  std::random_device device;
  id_prefix_ = fmt::format("{:08x}{:08x}", device(), device());
}

Service::~Service() {
  if (loop_) loop_->stop();
  if (workers_) workers_->stop();
}

Result<std::unique_ptr<Service>> Service::create(engine::Engine& engine, ServiceOptions options) {
  HttpLimits& limits = options.http.limits;
  limits.body_bytes = body_limit(limits, engine.options().max_model_len);
  const std::string& chat_template = engine.files().chat_template();
  if (!options.calls) options.calls = text::detect_call_format(chat_template);
  if (!options.reasoning) options.reasoning = text::detect_reasoning_format(chat_template);
  std::unique_ptr<Service> service(new Service(engine, std::move(options)));
  auto chat = engine::ChatFormatter::create(engine.files(), engine.tokenizer());
  if (chat.ok()) {
    service->chat_ = std::move(chat).value();
  } else {
    service->chat_error_ = chat.status();
  }
  auto http = HttpServer::listen(service->options_.http, *service);
  if (!http.ok()) return http.status();
  service->http_ = std::move(http).value();
  if (const int room = service->http_->max_connections();
      room < service->options_.http.limits.connections)
    service->options_.log(
        fmt::format("warning: at most {} connections: this process may not open more files", room));
  service->workers_ = std::make_unique<WorkerPool>(service->options_.workers);
  service->loop_ = std::make_unique<EngineLoop>(
      engine, [raw = service.get()](std::string_view cause) { raw->on_damage(cause); },
      [raw = service.get()] { raw->flush_ready(); });
  return service;
}

Status Service::run() {
  http_->on_signal([this] { on_signal(); });
  http_->every(std::chrono::milliseconds(50), [this] { tick(); });
  const Status served = http_->run();
  loop_->stop();
  workers_->stop();
  return served.ok() ? outcome_ : served;
}

void Service::on_signal() {
  if (draining_.exchange(true)) {
    outcome_ = cancelled("a second signal cut the draining short");
    return http_->stop();
  }
  drain_since_ = idle_since_ = Clock::now();
  options_.log("draining: no new requests; those that run end first");
  http_->close_listener();
}

// On the engine's thread.
void Service::on_damage(std::string_view cause) {
  damaged_ = true;
  options_.log(fmt::format("the engine is damaged ({}); the server ends", cause));
}

void Service::tick() {
  const Clock::time_point now = Clock::now();
  ApiError late = overloaded(503, "the request waited too long for its turn", 1);
  std::vector<Admission::Ticket> expired;
  {
    const std::lock_guard lock(mutex_);
    expired = admission_.expire(now);
    late.retry_after = admission_.retry_after();
  }
  refuse_tickets(expired, late);
  for (const auto& generation : all_generations()) generation->look_after(now);
  flush_ready();  // where there was no memory to do it in time
  admit_next();
  if (damaged_) {
    // What runs will get no more events.
    const ApiError error = from_status(internal_error("damaged"), "");
    for (const auto& generation : all_generations()) generation->fail_hard(error);
  }
  if (damaged_ && !draining_.exchange(true)) {
    outcome_ = internal_error("the engine is damaged");
    drain_since_ = idle_since_ = now;
    http_->close_listener();
  }
  metrics_.sample_utilization(loop_->busy_seconds(), uptime());
  if (draining_) end_drain(now);
}

void Service::end_drain(Clock::time_point now) {
  const auto generations = all_generations();
  if (!generations.empty()) idle_since_ = now;
  const bool late = now - drain_since_ > options_.drain_timeout;
  if (late && !gave_up_) {
    for (const auto& generation : generations)
      generation->stop(overloaded(503, "the server is shutting down", 1));
    gave_up_ = true;
  }
  constexpr std::chrono::seconds kLastWords{2};
  const bool quiet =
      generations.empty() && (http_->open_connections() == 0 || now - idle_since_ > kLastWords);
  if (quiet || now - drain_since_ > options_.drain_timeout + 2 * kLastWords) http_->stop();
}

void Service::ready(std::shared_ptr<Generation> generation) {
  const std::lock_guard lock(ready_mutex_);
  ready_.push_back(std::move(generation));
}

void Service::flush_ready() {
  const std::lock_guard lock(ready_mutex_);
  if (ready_.empty() || ready_posted_) return;
  try {
    http_->post([this] { drain_ready(); });
    ready_posted_ = true;
  } catch (const std::bad_alloc&) {  // tick() tries again
  }
}

void Service::drain_ready() {
  {
    const std::lock_guard lock(ready_mutex_);
    ready_posted_ = false;
    taken_.swap(ready_);
  }
  for (const auto& generation : taken_) {
    try {
      generation->drain();
    } catch (const InternalError&) {  // of one of them; the others go on
    }
  }
  taken_.clear();
}

std::vector<std::shared_ptr<Generation>> Service::all_generations() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Generation>> all;
  all.reserve(generations_.size());
  for (const auto& [ticket, generation] : generations_) all.push_back(generation);
  return all;
}

// ---- Access

std::optional<ApiError> Service::check_browser(const HttpHead& head) const {
  const std::string_view host = head.header("host");
  const bool any_host = contains(options_.allowed_hosts, "*") ||
                        contains(options_.allowed_hosts, host_name(host)) || host.empty();
  // A page elsewhere can make a browser call this machine under another name.
  if (!any_host && !is_loopback_host(host))
    return http_error(403, "the Host header names another server; see --allowed-hosts");
  const std::string_view origin = head.header("origin");
  if (origin.empty() || contains(options_.allowed_origins, "*") ||
      contains(options_.allowed_origins, origin))
    return std::nullopt;
  const size_t scheme = origin.find("://");
  if (scheme != std::string_view::npos && origin.substr(scheme + 3) == host) return std::nullopt;
  return http_error(403, "the Origin is not allowed; see --allowed-origins");
}

std::optional<ApiError> Service::check_access(const HttpHead& head) const {
  if (auto error = check_browser(head)) return error;
  if (options_.keys && !is_public(head)) {
    const std::string_view key = presented_key(head);
    if (key.empty()) return http_error(401, "an API key is needed: Authorization: Bearer KEY");
    if (!options_.keys->find(key)) return http_error(401, "the API key is not valid");
  }
  return std::nullopt;
}

std::optional<HttpResponse> Service::refuse(const HttpHead& head) {
  const ErrorStyle style = error_style(head.path);
  const auto with_headers = [&](HttpResponse response) {
    metrics_.response(response.status);
    for (HttpHeader& header : answer_headers(head, next_id_++))
      response.headers.push_back(std::move(header));
    return response;
  };
  if (head.method == "OPTIONS" && !check_browser(head)) {
    HttpResponse response{.status = 204};
    response.headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                        {"Access-Control-Allow-Headers", "authorization, content-type, x-api-key"}};
    return with_headers(std::move(response));
  }
  if (auto error = check_access(head)) return with_headers(error->response(style));
  const std::string_view wanted =
      head.method == "HEAD" ? std::string_view("GET") : std::string_view(head.method);
  const std::string_view path =
      head.path.rfind(kModelPrefix, 0) == 0 ? std::string_view("/v1/models") : head.path;
  const Route* found = nullptr;
  for (const Route& route : routes()) {
    if (route.path == path) found = &route;
  }
  static const Route kPage{"GET", "/", "The web page", {}};
  if (options_.page && is_page(path)) found = &kPage;
  if (found == nullptr) return with_headers(http_error(404, "there is no such route").response());
  if (found->method != wanted) {
    HttpResponse response = http_error(405, "the route takes another method").response(style);
    response.headers.push_back({"Allow", found->method == "GET" ? "GET, HEAD" : "POST"});
    return with_headers(std::move(response));
  }
  const std::string_view coding = head.header("content-encoding");
  if (!coding.empty() && coding != "identity")
    return with_headers(http_error(415, "compressed bodies are not read").response(style));
  if (found->method == "POST" && draining_)
    return with_headers(overloaded(503, "the server is shutting down", 1).response(style));
  return std::nullopt;
}

std::string Service::error_body(int status, std::string_view message) {
  metrics_.response(status);
  return http_error(status, message).json();
}

std::vector<HttpHeader> Service::answer_headers(const HttpHead& head, uint64_t number) const {
  std::vector<HttpHeader> headers;
  headers.push_back({"X-Request-Id", fmt::format("req-{}{:06x}", id_prefix_, number)});
  if (std::string id = cleaned_id(head.header("x-request-id")); !id.empty())
    headers.push_back({"X-Client-Request-Id", std::move(id)});
  const std::string_view origin = head.header("origin");
  if (!origin.empty() && !check_browser(head)) {
    headers.push_back({"Access-Control-Allow-Origin", std::string(origin)});
    headers.push_back({"Vary", "Origin"});
  }
  return headers;
}

// ---- Routes without a body

HttpResponse Service::answer_get(const HttpHead& head) {
  if (head.path == "/health") {
    const bool good = !damaged_ && loop_->making_progress(options_.step_watchdog);
    if (good) return {.body = "{\"status\":\"ok\"}"};
    return overloaded(503, "the engine makes no progress", 1).response();
  }
  if (head.path == "/ready") {
    if (!draining_ && !damaged_) return {.body = "{\"status\":\"ready\"}"};
    return overloaded(503, "the server takes no new requests", 1).response();
  }
  if (head.path == "/version") {
    JsonWriter json;
    json.begin_object().field("version", options_.version).end_object();
    return {.body = json.take()};
  }
  if (head.path == "/metrics")
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_text()};
  if (head.path == "/status") return {.body = status_json(head.query)};
  if (auto page = page_response(head.path)) return std::move(*page);
  if (head.path == "/openapi.json") return {.body = openapi_document(options_.version)};
  if (head.path == "/v1/models") return {.body = models_json()};
  const std::string_view name = std::string_view(head.path).substr(kModelPrefix.size());
  if (contains(options_.served_names, name)) {
    JsonWriter json;
    json.begin_object().field("id", name).field("object", "model");
    json.field("created", started_wall_).field("owned_by", "pelton").end_object();
    return {.body = json.take()};
  }
  return http_error(404, "the model is not served here").response();
}

std::string Service::models_json() const {
  JsonWriter json;
  json.begin_object().field("object", "list").key("data").begin_array();
  for (const std::string& name : options_.served_names) {
    json.begin_object().field("id", name).field("object", "model");
    json.field("created", started_wall_).field("owned_by", "pelton");
    json.field("max_model_len", int64_t{engine_.options().max_model_len}).end_object();
  }
  json.end_array().end_object();
  return json.take();
}

std::string Service::metrics_text() {
  Metrics::Gauges gauges;
  {
    const std::lock_guard lock(mutex_);
    gauges.waiting = admission_.waiting();
  }
  gauges.connections = http_->open_connections();
  gauges.busy_seconds = loop_->busy_seconds();
  gauges.uptime_seconds = uptime();
  return metrics_.text(engine_.metrics(), gauges,
                       options_.vllm_metric_names ? options_.served_names.front() : "");
}

void Service::respond(HttpExchange& exchange, const std::vector<HttpHeader>& headers,
                      HttpResponse response) {
  metrics_.response(response.status);
  response.headers.insert(response.headers.end(), headers.begin(), headers.end());
  exchange.respond(std::move(response));
}

// ---- Admission

// Where there is no memory for it, it has not entered.
void Service::enter(const std::shared_ptr<Generation>& generation) {
  ApiError full = overloaded(429, "too many requests are waiting", 1);
  Admission::Verdict verdict;
  {
    const std::lock_guard lock(mutex_);
    std::map<Admission::Ticket, std::shared_ptr<Generation>> entry;
    entry.emplace(generation->ticket(), generation);
    verdict = admission_.offer(generation->entry(), Clock::now());
    generations_.merge(entry);  // takes no memory
    full.retry_after = admission_.retry_after();
  }
  if (verdict == Admission::Verdict::kRun) return generation->launch();
  if (verdict == Admission::Verdict::kFull) generation->fail_hard(full);
}

bool Service::abandon(Generation& generation) {
  const std::lock_guard lock(mutex_);
  return admission_.abandon(generation.ticket());
}

void Service::ended(Generation& generation) {
  metrics_.request_ended(generation.how(), generation.times(), generation.usage());
  remember(generation);
  log_end(generation);
  {
    const std::lock_guard lock(mutex_);
    if (generation.how() == RequestEnd::kStop || generation.how() == RequestEnd::kLength)
      admission_.note_duration(generation.seconds());
    admission_.finish(generation.ticket(), generation.generated_tokens());
    generations_.erase(generation.ticket());
  }
  admit_next();
}

// A line that there is no memory for is not written.
void Service::log_end(const Generation& generation) {
  try {
    if (!generation.fault().ok())
      log_fault(generation.request_id(), generation.fault().to_string());
    if (!options_.request_log) return;
    workers_->post([this, self = generation.shared_from_this()] {
      options_.request_log(self->log_line(wall_milliseconds()));
    });
  } catch (const std::bad_alloc&) {
  }
}

// What went wrong inside is told here alone: it may hold paths.
void Service::log_fault(std::string_view request, std::string_view what) const {
  options_.log(fmt::format("{} failed: {}", request, what));
}

// Lets in who may run now. What there is no memory for waits until the next time.
void Service::admit_next() {
  std::vector<Admission::Ticket> next;
  {
    const std::lock_guard lock(mutex_);
    next = admission_.admit();
  }
  if (next.empty()) return;
  // Handing over a request takes a while; this may be the I/O thread.
  try {
    workers_->post([this, next] { launch(next); });
  } catch (const std::bad_alloc&) {
    launch(next);
  }
}

void Service::launch(const std::vector<Admission::Ticket>& tickets) {
  for (const Admission::Ticket ticket : tickets) {
    std::shared_ptr<Generation> generation;
    {
      const std::lock_guard lock(mutex_);
      const auto found = generations_.find(ticket);
      if (found != generations_.end()) generation = found->second;
    }
    if (generation) generation->launch();
  }
}

void Service::refuse_tickets(const std::vector<Admission::Ticket>& tickets, const ApiError& error) {
  for (const Admission::Ticket ticket : tickets) {
    std::shared_ptr<Generation> generation;
    {
      const std::lock_guard lock(mutex_);
      const auto found = generations_.find(ticket);
      if (found != generations_.end()) generation = found->second;
    }
    if (generation) generation->fail_hard(error);
  }
}

}  // namespace pelton::server
