// What the two OpenAI formats share.
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

JsonWriter OpenAiFormat::begin_chunk() {
  if (chunk_head_.empty()) {
    JsonWriter json;
    head(true, json);
    chunk_head_ = json.take();
  }
  return JsonWriter(chunk_head_);
}

void OpenAiFormat::end(const Usage& usage, const std::string& timings, std::string* out) {
  if (info_.include_usage || !timings.empty()) {
    JsonWriter json = begin_chunk();
    json.key("choices").begin_array().end_array();
    if (info_.include_usage) write_usage(usage, json.key("usage"));
    if (!timings.empty()) json.key("timings").raw(timings);
    json.end_object();
    append_sse("", json.text(), out);
  }
  append_sse("", "[DONE]", out);
}

void OpenAiFormat::failed(const ApiError& error, std::string* out) {
  append_sse("", error.json(), out);
  append_sse("", "[DONE]", out);
}

}  // namespace pelton::server
