// Requests with a body: read on a worker, checked, tokenized, handed on.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/json_writer.h"
#include "server/service.h"

namespace pelton::server {

// One request on a worker. Whatever happens to it, its client gets an answer.
struct Service::Call {
  Call(Service& owner, std::shared_ptr<HttpExchange> to)
      : service(owner), exchange(std::move(to)) {}
  ~Call() {
    // Left by an exception: nobody has answered.
    if (exchange) answer(from_status(internal_error("left unanswered"), "").response());
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void answer(HttpResponse response) {
    service.respond(*exchange, headers, std::move(response));
    exchange = nullptr;
  }
  bool is_chat() const { return exchange->head().path == "/v1/chat/completions"; }

  Service& service;
  std::shared_ptr<HttpExchange> exchange;  // null once answered or handed on
  std::vector<HttpHeader> headers;
  Clock::time_point arrival = Clock::now();
  uint64_t number = 0;
  ApiRequest request;
};

void Service::handle(std::shared_ptr<HttpExchange> exchange) {
  auto call = std::make_shared<Call>(*this, std::move(exchange));
  call->number = next_id_++;
  const HttpHead& head = call->exchange->head();
  call->headers = answer_headers(head, call->number);
  if (head.method == "GET" || head.method == "HEAD") return call->answer(answer_get(head));
  workers_->post([this, call] { answer_post(*call); });
}

void Service::answer_post(Call& call) {
  const std::string_view path = call.exchange->head().path;
  call.request.sampling = engine_.files().default_sampling();
  std::optional<ApiError> error;
  if (path == "/tokenize") {
    error = tokenize(call);
  } else if (path == "/detokenize") {
    error = detokenize(call);
  } else {
    error = generate(call);
  }
  if (error) call.answer(error->response());
}

std::optional<ApiError> Service::check_model(const ApiRequest& request) const {
  const auto& names = options_.served_names;
  if (request.model.empty() || std::find(names.begin(), names.end(), request.model) != names.end())
    return std::nullopt;
  ApiError error = http_error(404, "the model is not served here; /v1/models lists what is");
  error.code = "model_not_found";
  error.param = "model";
  return error;
}

std::optional<ApiError> Service::chat_ids(const ApiRequest& request,
                                          std::vector<int32_t>* ids) const {
  if (!chat_) return invalid_field("messages", "messages: the model has no usable chat template");
  auto made = chat_->prompt_ids({.messages = request.messages,
                                 .tools = request.tools,
                                 .add_generation_prompt = request.add_generation_prompt,
                                 .extra = request.template_kwargs});
  if (!made.ok()) {
    if (made.status().code() == StatusCode::kResourceExhausted ||
        made.status().code() == StatusCode::kInternal)
      return from_status(made.status(), "messages");
    return invalid_field("messages",
                         "messages: the chat template refuses them: " + made.status().message());
  }
  *ids = std::move(made).value();
  return std::nullopt;
}

std::optional<ApiError> Service::prompt_ids(Call& call,
                                            std::vector<std::vector<int32_t>>* prompts) const {
  const ApiRequest& request = call.request;
  if (call.is_chat()) return chat_ids(request, &prompts->emplace_back());
  const text::EncodeOptions options{.add_special_tokens = request.add_special_tokens,
                                    .parse_special = request.parse_special};
  for (const auto& prompt : request.prompts) {
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
      prompts->push_back(*ids);
    } else {
      prompts->push_back(engine_.tokenizer()->encode(std::get<std::string>(prompt), options));
    }
    if (prompts->back().empty()) return invalid_field("prompt", "prompt: holds no tokens");
  }
  return std::nullopt;
}

std::optional<ApiError> Service::check_length(const std::vector<int32_t>& ids,
                                              const ApiRequest& request,
                                              std::string_view param) const {
  const int32_t vocab = engine_.config().vocab_size;
  for (const int32_t id : ids) {
    if (id >= vocab)
      return invalid_field(
          param, fmt::format("{}: token id {} is outside the vocabulary of {}", param, id, vocab));
  }
  const int32_t limit = engine_.options().max_model_len;
  const int64_t wanted =
      static_cast<int64_t>(ids.size()) + (request.sampling.max_tokens == 0 ? 0 : 1);
  if (wanted <= limit) return std::nullopt;
  ApiError error =
      invalid_field(param, fmt::format("{}: {} tokens leave no room to generate in a context of {}",
                                       param, ids.size(), limit));
  error.code = "context_length_exceeded";
  return error;
}

// What the API's fields mean to the sampler.
std::optional<ApiError> Service::settle_sampling(bool chat, ApiRequest* request) const {
  SamplingParams& s = request->sampling;
  if (request->max_tokens && request->max_completion_tokens &&
      *request->max_tokens != *request->max_completion_tokens)
    return invalid_field("max_completion_tokens", "max_completion_tokens: contradicts max_tokens");
  constexpr int32_t kCompletionDefault = 16;  // as the API has always had it
  if (const auto tokens =
          request->max_completion_tokens ? request->max_completion_tokens : request->max_tokens) {
    s.max_tokens = *tokens;
  } else if (!chat) {
    s.max_tokens = std::max(kCompletionDefault, s.min_tokens);
  }
  if (chat && request->top_logprobs > 0 && !request->want_logprobs)
    return invalid_field("top_logprobs", "top_logprobs: needs logprobs to be true");
  if (chat && request->want_logprobs) s.logprobs = request->top_logprobs;
  if (request->best_of != 0 && request->best_of != s.n)
    return unsupported_field("best_of", "best_of: only the value of n is supported");
  if (request->echo && s.logprobs >= 0) s.prompt_logprobs = s.logprobs;
  if (request->include_usage && !request->stream)
    return invalid_field("stream_options", "stream_options: needs stream to be true");
  const Status valid = validate(s, engine_.config().vocab_size, engine_.options().max_model_len);
  if (!valid.ok()) return from_status(valid, "");
  return std::nullopt;
}

std::unique_ptr<AnswerFormat> Service::make_format(
    const Call& call, const std::vector<std::vector<int32_t>>& prompts) const {
  const ApiRequest& request = call.request;
  AnswerInfo info{.id = fmt::format("{}-{}{:06x}", call.is_chat() ? "chatcmpl" : "cmpl", id_prefix_,
                                    call.number),
                  .model = request.model.empty() ? options_.served_names.front() : request.model,
                  .created = std::chrono::duration_cast<std::chrono::seconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count(),
                  .tokenizer = engine_.tokenizer(),
                  .logprobs = request.sampling.logprobs >= 0,
                  .top_logprobs = std::max(0, request.sampling.logprobs),
                  .include_usage = request.include_usage,
                  .n = request.sampling.n};
  if (call.is_chat()) return make_chat_format(std::move(info));
  std::vector<EchoedPrompt> echoes;
  for (size_t i = 0; request.echo && i < prompts.size(); ++i) {
    const auto* text = std::get_if<std::string>(&request.prompts[i]);
    echoes.push_back(
        {text != nullptr ? *text : engine_.tokenizer()->decode(prompts[i], true), prompts[i]});
  }
  return make_completion_format(std::move(info), std::move(echoes));
}

std::optional<ApiError> Service::generate(Call& call) {
  const bool chat = call.is_chat();
  ApiRequest& request = call.request;
  const std::string param = chat ? "messages" : "prompt";
  const auto fields = chat ? chat_fields() : completion_fields();
  if (auto error = read_fields(call.exchange->body(), fields, &request)) return error;
  if (auto error = check_model(request)) return error;
  if (auto error = settle_sampling(chat, &request)) return error;
  std::vector<std::vector<int32_t>> prompts;
  if (auto error = prompt_ids(call, &prompts)) return error;
  constexpr size_t kMaxChoices = 128;
  if (prompts.size() * static_cast<size_t>(request.sampling.n) > kMaxChoices)
    return invalid_field("n", fmt::format("n: at most {} choices in one request", kMaxChoices));
  GenerationPlan plan{.ticket = call.number,
                      .requests = {},
                      .format = make_format(call, prompts),
                      .headers = call.headers,
                      .stream = request.stream,
                      .timings = request.timings,
                      .param = param,
                      .timeout_s = request.timeout_s,
                      .arrival = call.arrival};
  if (options_.keys)
    plan.tenant = options_.keys->find(presented_key(call.exchange->head())).value_or(0);
  for (std::vector<int32_t>& ids : prompts) {
    if (auto error = check_length(ids, request, param)) return error;
    plan.requests.push_back({.prompt_ids = std::move(ids),
                             .sampling = request.sampling,
                             .priority = request.priority,
                             .cache_salt = request.cache_salt});
  }
  auto exchange = std::exchange(call.exchange, nullptr);
  auto generation = std::make_shared<Generation>(*this, exchange, std::move(plan));
  exchange->on_gone([weak = std::weak_ptr(generation)] {
    if (const auto alive = weak.lock()) alive->stop(std::nullopt);
  });
  enter(generation);
  return std::nullopt;
}

std::optional<ApiError> Service::tokenize(Call& call) {
  ApiRequest& request = call.request;
  if (auto error = read_fields(call.exchange->body(), tokenize_fields(), &request)) return error;
  if (auto error = check_model(request)) return error;
  std::vector<int32_t> ids;
  if (!request.messages.is_null()) {
    if (!request.text.empty()) return invalid_field("prompt", "prompt: excludes messages");
    if (auto error = chat_ids(request, &ids)) return error;
  } else {
    ids = engine_.tokenizer()->encode(
        request.text,
        {.add_special_tokens = request.add_special_tokens, .parse_special = request.parse_special});
  }
  JsonWriter json;
  json.begin_object().field("count", static_cast<int64_t>(ids.size()));
  json.field("max_model_len", int64_t{engine_.options().max_model_len});
  json.key("tokens").begin_array();
  for (const int32_t id : ids) json.integer(id);
  json.end_array().end_object();
  call.answer({.body = json.take()});
  return std::nullopt;
}

std::optional<ApiError> Service::detokenize(Call& call) {
  ApiRequest& request = call.request;
  if (auto error = read_fields(call.exchange->body(), detokenize_fields(), &request)) return error;
  if (auto error = check_model(request)) return error;
  for (const int32_t id : request.tokens) {
    if (id >= engine_.tokenizer()->vocab_size())
      return invalid_field("tokens", fmt::format("tokens: {} is outside the vocabulary", id));
  }
  JsonWriter json;
  json.begin_object().field("prompt", engine_.tokenizer()->decode(request.tokens, false));
  json.end_object();
  call.answer({.body = json.take()});
  return std::nullopt;
}

}  // namespace pelton::server
