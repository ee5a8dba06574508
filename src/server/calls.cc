// Requests with a body: read on a worker, checked, tokenized, handed on.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/check.h"
#include "server/json_writer.h"
#include "server/service.h"

namespace pelton::server {

// One request on a worker. Whatever happens to it, its client gets an answer.
struct Service::Call {
  Call(Service& owner, std::shared_ptr<HttpExchange> to)
      : service(owner), exchange(std::move(to)) {}
  ~Call() {
    // Left by an exception: nobody has answered.
    if (!exchange) return;
    try {
      const Status cause = fault ? internal_error("left unanswered") : resource_exhausted("");
      answer(from_status(cause, "").response(error_style(exchange->head().path)));
    } catch (const std::bad_alloc&) {
      exchange->abandon();
    }
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void answer(HttpResponse response) {
    service.respond(*exchange, headers, std::move(response));
    exchange = nullptr;
  }
  std::string_view id() const { return headers.front().value; }
  // By what the route is, not by what was asked.
  enum class Api { kCompletions, kChat, kMessages };
  bool is_conversation() const { return api != Api::kCompletions; }

  Service& service;
  std::shared_ptr<HttpExchange> exchange;  // null once answered or handed on
  std::vector<HttpHeader> headers;
  Clock::time_point arrival = Clock::now();
  uint64_t number = 0;
  bool fault = false;  // something else than memory was wanting
  ApiRequest request;
  Api api = Api::kCompletions;
};

void Service::handle(std::shared_ptr<HttpExchange> exchange) {
  auto call = std::make_shared<Call>(*this, std::move(exchange));
  call->number = next_id_++;
  const HttpHead& head = call->exchange->head();
  call->headers = answer_headers(head, call->number);
  if (head.method == "GET" || head.method == "HEAD") return call->answer(answer_get(head));
  workers_->post([this, call] {
    try {
      answer_post(*call);
    } catch (const InternalError& error) {
      call->fault = true;
      log_fault(call->id(), error.what());
    }
  });
}

void Service::answer_post(Call& call) {
  const std::string_view path = call.exchange->head().path;
  call.request.sampling = engine_.files().default_sampling();
  std::optional<ApiError> error;
  if (path == "/tokenize") {
    error = tokenize(call);
  } else if (path == "/detokenize") {
    error = detokenize(call);
  } else if (path == "/v1/embeddings") {
    error = embed(call);
  } else if (path == "/v1/messages/count_tokens") {
    error = count_tokens(call);
  } else {
    if (path == "/v1/chat/completions") call.api = Call::Api::kChat;
    if (path == "/v1/messages") call.api = Call::Api::kMessages;
    error = generate(call);
  }
  if (error) call.answer(error->response(error_style(path)));
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

// Tools reach a model through its template, and come back only where it is known how it calls them.
std::optional<ApiError> Service::check_tools(const ApiRequest& request) const {
  if (request.tools.is_null() || request.tool_choice_none) return std::nullopt;
  if (engine_.files().chat_template().find("tools") == std::string::npos)
    return unsupported_field("tools", "tools: the model's chat template has no place for them");
  if (*options_.calls != text::CallFormat::kNone) return std::nullopt;
  return unsupported_field("tools",
                           "tools: how this model writes calls is not known: the server was "
                           "started without a --tool-call-parser for it");
}

std::optional<ApiError> Service::chat_ids(const ApiRequest& request,
                                          std::vector<int32_t>* ids) const {
  if (!chat_) return invalid_field("messages", "messages: the model has no usable chat template");
  if (auto error = check_tools(request)) return error;
  Json messages = request.messages;
  if (!request.system.empty()) {
    Json system = Json::object();
    system["role"] = "system";
    system["content"] = request.system;
    messages.elements().insert(messages.elements().begin(), std::move(system));
  }
  auto made = chat_->prompt_ids({.messages = std::move(messages),
                                 .tools = request.tool_choice_none ? Json() : request.tools,
                                 .add_generation_prompt = request.add_generation_prompt,
                                 .extra = request.template_kwargs});
  if (!made.ok()) {
    if (made.status().code() == StatusCode::kResourceExhausted ||
        made.status().code() == StatusCode::kInternal) {
      ApiError error = from_status(made.status(), "messages");
      if (error.status == 500) options_.log("a chat template failed: " + made.status().message());
      return error;
    }
    return invalid_field("messages",
                         "messages: the chat template refuses them: " + made.status().message());
  }
  *ids = std::move(made).value();
  return std::nullopt;
}

std::optional<ApiError> Service::prompt_ids(Call& call,
                                            std::vector<std::vector<int32_t>>* prompts) const {
  const ApiRequest& request = call.request;
  if (call.is_conversation()) return chat_ids(request, &prompts->emplace_back());
  const text::EncodeOptions options{.add_special_tokens = request.add_special_tokens,
                                    .parse_special = request.parse_special};
  for (const auto& prompt : request.prompts) {
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
      prompts->push_back(*ids);
    } else {
      prompts->push_back(engine_.tokenizer()->encode(std::get<std::string>(prompt), options));
    }
    if (prompts->back().empty()) {
      const bool embeds = call.exchange->head().path == "/v1/embeddings";
      const std::string_view param = embeds ? "input" : "prompt";
      return invalid_field(param, fmt::format("{}: holds no tokens", param));
    }
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
std::optional<ApiError> Service::settle_sampling(const Call& call, ApiRequest* request) const {
  const bool chat = call.is_conversation();
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
  const bool calls = !request->tools.is_null() && !request->tool_choice_none;
  if (chat && text::needs_special_tokens(calls ? *options_.calls : text::CallFormat::kNone,
                                         *options_.reasoning))
    s.skip_special_tokens = false;
  const Status valid = validate(s, engine_.config().vocab_size, engine_.options().max_model_len);
  if (!valid.ok()) return from_status(valid, "");
  return std::nullopt;
}

text::OutputOptions Service::output_options(const ApiRequest& request,
                                            const std::vector<int32_t>& prompt) const {
  text::OutputOptions options{.reasoning = *options_.reasoning,
                              .parallel_calls = request.parallel_tool_calls};
  constexpr size_t kTail = 16;  // tokens that hold the end of a prompt's markup
  const std::vector<int32_t> tail(
      prompt.end() - static_cast<std::ptrdiff_t>(std::min(kTail, prompt.size())), prompt.end());
  options.reasoning_open =
      text::prompt_opens_reasoning(engine_.tokenizer()->decode(tail, false), options.reasoning);
  if (request.tools.is_null() || request.tool_choice_none) return options;
  options.calls = *options_.calls;
  for (const Json& tool : request.tools.elements())
    options.tools.push_back(tool["function"]["name"].as_string());
  return options;
}

AnswerInfo Service::answer_info(const Call& call) const {
  const ApiRequest& request = call.request;
  constexpr std::array<std::string_view, 3> kPrefixes = {"cmpl-", "chatcmpl-", "msg_"};
  return {.id = fmt::format("{}{}{:06x}", kPrefixes[static_cast<size_t>(call.api)], id_prefix_,
                            call.number),
          .model = request.model.empty() ? options_.served_names.front() : request.model,
          .created = std::chrono::duration_cast<std::chrono::seconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count(),
          .tokenizer = engine_.tokenizer(),
          .logprobs = request.sampling.logprobs >= 0,
          .top_logprobs = std::max(0, request.sampling.logprobs),
          .include_usage = request.include_usage,
          .n = request.sampling.n,
          .output = {},
          .stop = request.sampling.stop};
}

std::unique_ptr<AnswerFormat> Service::make_format(
    const Call& call, const std::vector<std::vector<int32_t>>& prompts) const {
  const ApiRequest& request = call.request;
  AnswerInfo info = answer_info(call);
  info.prompt_tokens = std::ssize(prompts.front());
  if (call.is_conversation()) {
    info.output = output_options(request, prompts.front());
    return call.api == Call::Api::kChat ? make_chat_format(std::move(info))
                                        : make_messages_format(std::move(info));
  }
  std::vector<EchoedPrompt> echoes;
  for (size_t i = 0; request.echo && i < prompts.size(); ++i) {
    const auto* text = std::get_if<std::string>(&request.prompts[i]);
    echoes.push_back(
        {text != nullptr ? *text : engine_.tokenizer()->decode(prompts[i], true), prompts[i]});
  }
  return make_completion_format(std::move(info), std::move(echoes));
}

GenerationPlan Service::make_plan(Call& call, std::unique_ptr<AnswerFormat> format) const {
  GenerationPlan plan;
  plan.ticket = call.number;
  plan.format = std::move(format);
  plan.headers = call.headers;
  plan.stream = call.request.stream;
  plan.timings = call.request.timings;
  plan.timeout_s = call.request.timeout_s;
  plan.arrival = call.arrival;
  if (options_.keys)
    plan.tenant = options_.keys->find(presented_key(call.exchange->head())).value_or(0);
  return plan;
}

void Service::hand_on(Call& call, GenerationPlan plan) {
  auto generation = std::make_shared<Generation>(*this, call.exchange, std::move(plan));
  call.exchange->on_gone([weak = std::weak_ptr(generation)] {
    if (const auto alive = weak.lock()) alive->stop(std::nullopt);
  });
  enter(generation);
  call.exchange = nullptr;
}

std::optional<ApiError> Service::generate(Call& call) {
  ApiRequest& request = call.request;
  const std::string param = call.is_conversation() ? "messages" : "prompt";
  const std::array<std::span<const Field>, 3> fields = {completion_fields(), chat_fields(),
                                                        messages_fields()};
  // A model that reasons by itself does so for Anthropic's clients only when they ask.
  if (call.api == Call::Api::kMessages) request.template_kwargs["enable_thinking"] = false;
  if (auto error =
          read_fields(call.exchange->body(), fields[static_cast<size_t>(call.api)], &request))
    return error;
  if (auto error = check_model(request)) return error;
  if (auto error = settle_sampling(call, &request)) return error;
  std::vector<std::vector<int32_t>> prompts;
  if (auto error = prompt_ids(call, &prompts)) return error;
  constexpr size_t kMaxChoices = 128;
  if (prompts.size() * static_cast<size_t>(request.sampling.n) > kMaxChoices)
    return invalid_field("n", fmt::format("n: at most {} choices in one request", kMaxChoices));
  GenerationPlan plan = make_plan(call, make_format(call, prompts));
  plan.param = param;
  for (std::vector<int32_t>& ids : prompts) {
    if (auto error = check_length(ids, request, param)) return error;
    plan.requests.push_back({.prompt_ids = std::move(ids),
                             .sampling = request.sampling,
                             .priority = request.priority,
                             .cache_salt = request.cache_salt});
  }
  hand_on(call, std::move(plan));
  return std::nullopt;
}

std::optional<ApiError> Service::embed(Call& call) {
  ApiRequest& request = call.request;
  if (auto error = read_fields(call.exchange->body(), embedding_fields(), &request)) return error;
  if (auto error = check_model(request)) return error;
  const int32_t own = engine_.config().hidden_size;
  if (request.dimensions && *request.dimensions != own)
    return unsupported_field("dimensions",
                             fmt::format("dimensions: this model's embeddings have {}", own));
  std::vector<std::vector<int32_t>> prompts;
  if (auto error = prompt_ids(call, &prompts)) return error;
  request.sampling = SamplingParams();
  GenerationPlan plan = make_plan(call, make_embedding_format(answer_info(call), request.base64));
  plan.param = "input";
  Pooling pooling = options_.pooling;
  if (!request.pooling.empty())
    pooling = request.pooling == "mean" ? Pooling::kMean : Pooling::kLast;
  for (std::vector<int32_t>& ids : prompts) {
    if (auto error = check_length(ids, request, "input")) return error;
    plan.requests.push_back({.prompt_ids = std::move(ids),
                             .priority = request.priority,
                             .cache_salt = request.cache_salt,
                             .pooling = pooling});
  }
  hand_on(call, std::move(plan));
  return std::nullopt;
}

std::optional<ApiError> Service::count_tokens(Call& call) {
  ApiRequest& request = call.request;
  request.template_kwargs["enable_thinking"] = false;
  if (auto error = read_fields(call.exchange->body(), count_tokens_fields(), &request))
    return error;
  if (auto error = check_model(request)) return error;
  std::vector<int32_t> ids;
  if (auto error = chat_ids(request, &ids)) return error;
  JsonWriter json;
  json.begin_object().field("input_tokens", static_cast<int64_t>(ids.size())).end_object();
  call.answer({.body = json.take()});
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
