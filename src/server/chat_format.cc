// chat.completion and chat.completion.chunk objects.
#include <utility>

#include "server/answer_format.h"
#include "server/json_writer.h"

namespace pelton::server {

void write_finish(FinishReason reason, JsonWriter& out) {
  if (reason == FinishReason::kStop || reason == FinishReason::kLength) {
    out.string(finish_reason_name(reason));
  } else {
    out.null();
  }
}

void write_usage(const Usage& usage, JsonWriter& out) {
  out.begin_object()
      .field("prompt_tokens", usage.prompt_tokens)
      .field("completion_tokens", usage.completion_tokens)
      .field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  out.key("prompt_tokens_details").begin_object().field("cached_tokens", usage.cached_tokens);
  out.end_object().end_object();
}

namespace {

class ChatFormat final : public AnswerFormat {
 public:
  explicit ChatFormat(AnswerInfo info) : info_(std::move(info)) {}

  void begin(std::string* out) override {
    for (int32_t choice = 0; choice < info_.n; ++choice) {
      chunk(choice, FinishReason::kNone, out,
            [](JsonWriter& json) { json.field("role", "assistant").field("content", ""); });
    }
  }

  void delta(int32_t choice, const TokenEvent& event, std::string* out) override {
    const bool probable = info_.logprobs && !event.logprobs.empty();
    if (!event.text.empty() || probable) {
      JsonWriter json = open_chunk(choice);
      json.key("delta").begin_object().field("content", event.text).end_object();
      if (probable) write_logprobs(event.logprobs, json);
      close_chunk(FinishReason::kNone, json, out);
    }
    if (event.finish != FinishReason::kNone) chunk(choice, event.finish, out, [](JsonWriter&) {});
  }

  void end(const Usage& usage, const std::string& timings, std::string* out) override {
    if (info_.include_usage || !timings.empty()) {
      JsonWriter json;
      head("chat.completion.chunk", json);
      json.key("choices").begin_array().end_array();
      if (info_.include_usage) write_usage(usage, json.key("usage"));
      if (!timings.empty()) json.key("timings").raw(timings);
      json.end_object();
      append_sse("", json.text(), out);
    }
    append_sse("", "[DONE]", out);
  }

  void failed(const ApiError& error, std::string* out) override {
    append_sse("", error.json(), out);
    append_sse("", "[DONE]", out);
  }

  std::string whole(const std::vector<Choice>& choices, const Usage& usage,
                    const std::string& timings) override {
    JsonWriter json;
    head("chat.completion", json);
    json.key("choices").begin_array();
    for (size_t i = 0; i < choices.size(); ++i) {
      json.begin_object().field("index", static_cast<int64_t>(i));
      json.key("message").begin_object().field("role", "assistant");
      json.field("content", choices[i].text).key("refusal").null().end_object();
      if (info_.logprobs) {
        write_logprobs(choices[i].logprobs, json);
      } else {
        json.key("logprobs").null();
      }
      write_finish(choices[i].finish, json.key("finish_reason"));
      json.end_object();
    }
    json.end_array();
    write_usage(usage, json.key("usage"));
    if (!timings.empty()) json.key("timings").raw(timings);
    json.end_object();
    return json.take();
  }

 private:
  void head(std::string_view object, JsonWriter& json) const {
    json.begin_object().field("id", info_.id).field("object", object);
    json.field("created", info_.created).field("model", info_.model);
  }

  JsonWriter open_chunk(int32_t choice) const {
    JsonWriter json;
    head("chat.completion.chunk", json);
    json.key("choices").begin_array().begin_object().field("index", int64_t{choice});
    return json;
  }

  void close_chunk(FinishReason finish, JsonWriter& json, std::string* out) const {
    write_finish(finish, json.key("finish_reason"));
    json.end_object().end_array();
    if (info_.include_usage) json.key("usage").null();
    json.end_object();
    append_sse("", json.text(), out);
  }

  template <typename Fill>
  void chunk(int32_t choice, FinishReason finish, std::string* out, Fill fill) const {
    JsonWriter json = open_chunk(choice);
    json.key("delta").begin_object();
    fill(json);
    json.end_object();
    close_chunk(finish, json, out);
  }

  void write_token(const TokenLogprob& token, JsonWriter& json) const {
    const std::string text = info_.tokenizer->decode({token.token}, false);
    json.field("token", text).key("logprob").number(token.logprob);
    json.key("bytes");
    // A piece of a character shows as U+FFFD: its bytes are not known here.
    if (text.find("\xEF\xBF\xBD") != std::string::npos) {
      json.null();
      return;
    }
    json.begin_array();
    for (const char c : text) json.integer(static_cast<unsigned char>(c));
    json.end_array();
  }

  void write_logprobs(const std::vector<TokenLogprobs>& tokens, JsonWriter& json) const {
    json.key("logprobs").begin_object().key("content").begin_array();
    for (const TokenLogprobs& token : tokens) {
      json.begin_object();
      write_token(token.chosen, json);
      json.key("top_logprobs").begin_array();
      for (const TokenLogprob& top : token.top) {
        json.begin_object();
        write_token(top, json);
        json.end_object();
      }
      json.end_array().end_object();
    }
    json.end_array().key("refusal").null().end_object();
  }

  AnswerInfo info_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_format(AnswerInfo info) {
  return std::make_unique<ChatFormat>(std::move(info));
}

}  // namespace pelton::server
