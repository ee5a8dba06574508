// How the answers of one API look: pieces of a stream, or one document. A format serves one request
// and is used by one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pelton/request.h"
#include "server/api_error.h"
#include "text/tokenizer.h"

namespace pelton::server {

struct AnswerInfo {
  std::string id;       // made by the server
  std::string model;    // the name it was asked for by
  int64_t created = 0;  // seconds since 1970
  std::shared_ptr<const text::Tokenizer> tokenizer;
  bool logprobs = false;
  int32_t top_logprobs = 0;
  bool include_usage = false;
  int32_t n = 1;  // choices of a prompt; choice = prompt * n + completion
};

// A choice, as far as it has come.
struct Choice {
  std::string text;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;  // on one choice of a prompt that asked for them
  FinishReason finish = FinishReason::kNone;
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
};

// "stop" or "length"; null otherwise.
void write_finish(FinishReason reason, class JsonWriter& out);
void write_usage(const Usage& usage, JsonWriter& out);

std::unique_ptr<AnswerFormat> make_chat_format(AnswerInfo info);

// With echo each choice begins with its prompt.
struct EchoedPrompt {
  std::string text;
  std::vector<int32_t> ids;
};
// `echoes`: empty, or one a prompt.
std::unique_ptr<AnswerFormat> make_completion_format(AnswerInfo info,
                                                     std::vector<EchoedPrompt> echoes);

}  // namespace pelton::server
