// How the answers of one API look: pieces of a stream, or one document. A format serves one request
// and is used by one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pelton/request.h"
#include "server/api_error.h"
#include "text/output/output_parser.h"
#include "text/tokenizer.h"

namespace pelton::server {

class JsonWriter;

struct AnswerInfo {
  std::string id;       // made by the server
  std::string model;    // the name it was asked for by
  int64_t created = 0;  // seconds since 1970
  std::shared_ptr<const text::Tokenizer> tokenizer;
  bool logprobs = false;
  int32_t top_logprobs = 0;
  bool include_usage = false;
  int32_t n = 1;                  // choices of a prompt; choice = prompt * n + completion
  text::OutputOptions output;     // what is told apart in the text of chats
  std::vector<std::string> stop;  // the request's stop strings
  int64_t prompt_tokens = 0;
};

// A choice, as far as it has come.
struct Choice {
  std::string text;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;  // on one choice of a prompt that asked for them
  FinishReason finish = FinishReason::kNone;
  int32_t stopped_by = -1;       // as TokenEvent's
  std::vector<float> embedding;  // of a pooling request
};

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // Streams: each call appends whole events.
  virtual void begin(std::string* out) = 0;
  virtual void delta(int32_t choice, const TokenEvent& event, std::string* out) = 0;
  // `timings`: an object, or empty.
  virtual void end(const Usage& usage, const std::string& timings, std::string* out) = 0;
  virtual void failed(const ApiError& error, std::string* out) = 0;

  virtual std::string whole(const std::vector<Choice>& choices, const Usage& usage,
                            const std::string& timings) = 0;
  virtual ErrorStyle error_style() const { return ErrorStyle::kOpenAi; }
};

// What the streams of OpenAI's two APIs have in common.
class OpenAiFormat : public AnswerFormat {
 public:
  explicit OpenAiFormat(AnswerInfo info) : info_(std::move(info)) {}
  void end(const Usage& usage, const std::string& timings, std::string* out) override;
  void failed(const ApiError& error, std::string* out) override;

 protected:
  // Opens an object with id, kind, time and model.
  virtual void head(bool chunk, JsonWriter& json) const = 0;
  // A chunk's object so far. The head, the same in all of them, is written once.
  JsonWriter begin_chunk();

  const AnswerInfo info_;

 private:
  std::string chunk_head_;
};

// "stop" or "length"; null otherwise.
void write_finish(FinishReason reason, JsonWriter& out);
void write_usage(const Usage& usage, JsonWriter& out);

std::unique_ptr<AnswerFormat> make_chat_format(AnswerInfo info);
// Anthropic's messages.
std::unique_ptr<AnswerFormat> make_messages_format(AnswerInfo info);
std::unique_ptr<AnswerFormat> make_embedding_format(AnswerInfo info, bool base64);

// With echo each choice begins with its prompt.
struct EchoedPrompt {
  std::string text;
  std::vector<int32_t> ids;
};
// `echoes`: empty, or one a prompt.
std::unique_ptr<AnswerFormat> make_completion_format(AnswerInfo info,
                                                     std::vector<EchoedPrompt> echoes);

}  // namespace pelton::server
