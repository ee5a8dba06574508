// Anthropic's messages: one document, or a stream of blocks.
#include <utility>

#include "base/json_tree.h"
#include "server/answer_format.h"
#include "server/json_writer.h"
#include "server/output_split.h"

namespace pelton::server {
namespace {

using Kind = text::OutputPiece::Kind;

class MessagesFormat final : public AnswerFormat {
 public:
  explicit MessagesFormat(AnswerInfo info) : info_(std::move(info)), split_(info_.output) {}

  void begin(std::string*) override {}

  void delta(int32_t, const TokenEvent& event, std::string* out) override {
    if (!std::exchange(begun_, true)) message_start(event.usage.cached_tokens, out);
    const bool last = event.finish != FinishReason::kNone;
    for (const text::OutputPiece& piece : split_.take(event.text, last)) {
      open_block(piece, out);
      block_delta(piece, out);
    }
    if (!last) return;
    close_block(out);
    finish_ = event.finish;
    stopped_by_ = event.stopped_by;
  }

  void end(const Usage& usage, const std::string& timings, std::string* out) override {
    JsonWriter json;
    json.begin_object().field("type", "message_delta").key("delta").begin_object();
    write_stop(finish_, stopped_by_, split_.called(), json);
    json.end_object();
    write_usage(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, json);
    if (!timings.empty()) json.key("timings").raw(timings);
    json.end_object();
    append_sse("message_delta", json.text(), out);
    append_sse("message_stop", R"({"type":"message_stop"})", out);
  }

  void failed(const ApiError& error, std::string* out) override {
    append_sse("error", error.json(ErrorStyle::kAnthropic), out);
  }

  std::string whole(const std::vector<Choice>& choices, const Usage& usage,
                    const std::string& timings) override {
    const Choice& choice = choices.front();
    const SplitAnswer answer = split_answer(choice.text, info_.output);
    JsonWriter json;
    head(json);
    json.key("content").begin_array();
    if (!answer.reasoning.empty()) {
      json.begin_object().field("type", "thinking").field("thinking", answer.reasoning);
      json.field("signature", "").end_object();
    }
    if (!answer.content.empty())
      json.begin_object().field("type", "text").field("text", answer.content).end_object();
    for (size_t i = 0; i < answer.calls.size(); ++i)
      write_call(static_cast<int32_t>(i), answer.calls[i], json);
    json.end_array();
    write_stop(choice.finish, choice.stopped_by, !answer.calls.empty(), json);
    write_usage(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, json);
    if (!timings.empty()) json.key("timings").raw(timings);
    json.end_object();
    return json.take();
  }

  ErrorStyle error_style() const override { return ErrorStyle::kAnthropic; }

 private:
  void head(JsonWriter& json) const {
    json.begin_object().field("id", info_.id).field("type", "message").field("role", "assistant");
    json.field("model", info_.model);
  }

  // Tokens from the cache are counted apart, not among input_tokens.
  static void write_usage(int64_t prompt, int64_t cached, int64_t output, JsonWriter& json) {
    json.key("usage").begin_object().field("input_tokens", prompt - cached);
    json.field("cache_creation_input_tokens", int64_t{0}).field("cache_read_input_tokens", cached);
    json.field("output_tokens", output).end_object();
  }

  void write_stop(FinishReason finish, int32_t stopped_by, bool called, JsonWriter& json) const {
    const bool sequence =
        finish == FinishReason::kStop && stopped_by >= 0 && stopped_by < std::ssize(info_.stop);
    json.key("stop_reason");
    if (finish == FinishReason::kLength) {
      json.string("max_tokens");
    } else if (finish != FinishReason::kStop) {
      json.null();
    } else {
      json.string(sequence ? "stop_sequence" : called ? "tool_use" : "end_turn");
    }
    json.key("stop_sequence");
    sequence ? json.string(info_.stop[static_cast<size_t>(stopped_by)]) : json.null();
  }

  std::string call_id(int32_t call) const {
    return tool_call_id("toolu_", info_.id, 0, call, info_.output.calls);
  }

  void write_call(int32_t index, const SplitAnswer::Call& call, JsonWriter& json) const {
    // An input is an object: what was cut short or is none is left out.
    const auto input = Json::parse(call.arguments);
    json.begin_object().field("type", "tool_use").field("id", call_id(index));
    json.field("name", call.name).key("input");
    json.raw(input.ok() && input->is_object() ? std::string_view(call.arguments) : "{}");
    json.end_object();
  }

  void message_start(int64_t cached, std::string* out) const {
    JsonWriter json;
    json.begin_object().field("type", "message_start").key("message");
    head(json);
    json.key("content").begin_array().end_array();
    write_stop(FinishReason::kNone, -1, false, json);
    write_usage(info_.prompt_tokens, cached, 0, json);
    json.end_object().end_object();
    append_sse("message_start", json.text(), out);
  }

  void open_block(const text::OutputPiece& piece, std::string* out) {
    const Kind kind = piece.kind == Kind::kCallArguments ? Kind::kCallName : piece.kind;
    if (open_ && kind == kind_ && piece.call == call_) return;
    close_block(out);
    open_ = true;
    kind_ = kind;
    call_ = piece.call;
    JsonWriter json;
    json.begin_object().field("type", "content_block_start").field("index", int64_t{index_});
    json.key("content_block").begin_object();
    if (kind == Kind::kContent) {
      json.field("type", "text").field("text", "");
    } else if (kind == Kind::kReasoning) {
      json.field("type", "thinking").field("thinking", "").field("signature", "");
    } else {
      json.field("type", "tool_use").field("id", call_id(call_)).field("name", piece.text);
      json.key("input").begin_object().end_object();
    }
    json.end_object().end_object();
    append_sse("content_block_start", json.text(), out);
  }

  void block_delta(const text::OutputPiece& piece, std::string* out) const {
    if (piece.kind == Kind::kCallName) return;
    JsonWriter json;
    json.begin_object().field("type", "content_block_delta").field("index", int64_t{index_});
    json.key("delta").begin_object();
    if (piece.kind == Kind::kContent) {
      json.field("type", "text_delta").field("text", piece.text);
    } else if (piece.kind == Kind::kReasoning) {
      json.field("type", "thinking_delta").field("thinking", piece.text);
    } else {
      json.field("type", "input_json_delta").field("partial_json", piece.text);
    }
    json.end_object().end_object();
    append_sse("content_block_delta", json.text(), out);
  }

  void close_block(std::string* out) {
    if (!std::exchange(open_, false)) return;
    JsonWriter json;
    json.begin_object().field("type", "content_block_stop").field("index", int64_t{index_++});
    json.end_object();
    append_sse("content_block_stop", json.text(), out);
  }

  const AnswerInfo info_;
  OutputSplit split_;
  bool begun_ = false;
  bool open_ = false;
  Kind kind_ = Kind::kContent;
  int32_t call_ = -1;
  int32_t index_ = 0;
  FinishReason finish_ = FinishReason::kNone;
  int32_t stopped_by_ = -1;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_messages_format(AnswerInfo info) {
  return std::make_unique<MessagesFormat>(std::move(info));
}

}  // namespace pelton::server
