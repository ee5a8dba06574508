// chat.completion and chat.completion.chunk objects.
#include <map>
#include <utility>

#include "server/answer_format.h"
#include "server/json_writer.h"
#include "server/output_split.h"

namespace pelton::server {
namespace {

using Kind = text::OutputPiece::Kind;

class ChatFormat final : public OpenAiFormat {
 public:
  using OpenAiFormat::OpenAiFormat;

  void begin(std::string* out) override {
    for (int32_t choice = 0; choice < info_.n; ++choice) {
      JsonWriter json = open_chunk(choice);
      json.key("delta").begin_object().field("role", "assistant").field("content", "");
      close_chunk(FinishReason::kNone, false, json.end_object(), out);
    }
  }

  void delta(int32_t choice, const TokenEvent& event, std::string* out) override {
    OutputSplit& split = splits_.try_emplace(choice, info_.output).first->second;
    const bool last = event.finish != FinishReason::kNone;
    text::OutputPieces pieces = split.take(event.text, last);
    bool probable = info_.logprobs && !event.logprobs.empty();
    // Log-probabilities of tokens whose text is not decided yet.
    if (pieces.empty() && probable) pieces.emplace_back();
    for (const text::OutputPiece& piece : pieces) {
      JsonWriter json = open_chunk(choice);
      write_delta(choice, piece, json);
      if (std::exchange(probable, false)) write_logprobs(event.logprobs, json);
      close_chunk(FinishReason::kNone, false, json, out);
    }
    if (!last) return;
    JsonWriter json = open_chunk(choice);
    json.key("delta").begin_object().end_object();
    close_chunk(event.finish, split.called(), json, out);
  }

  std::string whole(const std::vector<Choice>& choices, const Usage& usage,
                    const std::string& timings) override {
    JsonWriter json;
    head(false, json);
    json.key("choices").begin_array();
    for (size_t i = 0; i < choices.size(); ++i) {
      const SplitAnswer answer = split_answer(choices[i].text, info_.output);
      json.begin_object().field("index", static_cast<int64_t>(i));
      write_message(static_cast<int32_t>(i), answer, json);
      if (info_.logprobs) {
        write_logprobs(choices[i].logprobs, json);
      } else {
        json.key("logprobs").null();
      }
      write_end(choices[i].finish, !answer.calls.empty(), json.key("finish_reason"));
      json.end_object();
    }
    json.end_array();
    write_usage(usage, json.key("usage"));
    if (!timings.empty()) json.key("timings").raw(timings);
    json.end_object();
    return json.take();
  }

 private:
  void head(bool chunk, JsonWriter& json) const override {
    json.begin_object().field("id", info_.id);
    json.field("object", chunk ? "chat.completion.chunk" : "chat.completion");
    json.field("created", info_.created).field("model", info_.model);
  }

  JsonWriter open_chunk(int32_t choice) {
    JsonWriter json = begin_chunk();
    json.key("choices").begin_array().begin_object().field("index", int64_t{choice});
    return json;
  }

  void close_chunk(FinishReason finish, bool called, JsonWriter& json, std::string* out) const {
    write_end(finish, called, json.key("finish_reason"));
    json.end_object().end_array();
    if (info_.include_usage) json.key("usage").null();
    json.end_object();
    append_sse("", json.text(), out);
  }

  static void write_end(FinishReason finish, bool called, JsonWriter& json) {
    if (finish == FinishReason::kStop && called) {
      json.string("tool_calls");
    } else {
      write_finish(finish, json);
    }
  }

  std::string call_id(int32_t choice, int32_t call) const {
    return tool_call_id("call_", info_.id, choice, call, info_.output.calls);
  }

  void write_delta(int32_t choice, const text::OutputPiece& piece, JsonWriter& json) const {
    json.key("delta").begin_object();
    if (piece.kind == Kind::kContent) {
      json.field("content", piece.text);
    } else if (piece.kind == Kind::kReasoning) {
      json.field("reasoning_content", piece.text);
    } else {
      const bool name = piece.kind == Kind::kCallName;
      json.key("tool_calls").begin_array().begin_object().field("index", int64_t{piece.call});
      if (name) json.field("id", call_id(choice, piece.call)).field("type", "function");
      json.key("function").begin_object();
      if (name) json.field("name", piece.text);
      json.field("arguments", name ? std::string_view() : std::string_view(piece.text));
      json.end_object().end_object().end_array();
    }
    json.end_object();
  }

  void write_message(int32_t choice, const SplitAnswer& answer, JsonWriter& json) const {
    json.key("message").begin_object().field("role", "assistant").key("content");
    const bool only_calls = answer.content.empty() && !answer.calls.empty();
    only_calls ? json.null() : json.string(answer.content);
    json.key("refusal").null();
    if (info_.output.reasoning != text::ReasoningFormat::kNone) {
      json.key("reasoning_content");
      answer.reasoning.empty() ? json.null() : json.string(answer.reasoning);
    }
    if (!answer.calls.empty()) {
      json.key("tool_calls").begin_array();
      for (size_t i = 0; i < answer.calls.size(); ++i) {
        json.begin_object().field("id", call_id(choice, static_cast<int32_t>(i)));
        json.field("type", "function").key("function").begin_object();
        json.field("name", answer.calls[i].name).field("arguments", answer.calls[i].arguments);
        json.end_object().end_object();
      }
      json.end_array();
    }
    json.end_object();
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

  std::map<int32_t, OutputSplit> splits_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_format(AnswerInfo info) {
  return std::make_unique<ChatFormat>(std::move(info));
}

}  // namespace pelton::server
