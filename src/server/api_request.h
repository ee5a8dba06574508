// A request to generate text, whichever route it came by: what read_fields() makes of a body.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json_tree.h"
#include "pelton/sampling_params.h"

namespace pelton::server {

struct ApiRequest {
  std::string model;  // empty = the served one
  SamplingParams sampling;

  // Exactly one of these is set: prompts of /v1/completions, or a conversation.
  std::vector<std::variant<std::string, std::vector<int32_t>>> prompts;
  Json messages;  // a list, checked and flattened to what templates read
  Json tools;     // null or a list
  Json template_kwargs = Json::object();
  bool add_generation_prompt = true;
  bool tool_choice_none = false;
  bool parallel_tool_calls = true;
  std::string system;  // Anthropic's: stands before the messages

  bool echo = false;
  bool stream = false;
  bool include_usage = false;
  bool want_logprobs = false;  // chat: logprobs = true
  int32_t top_logprobs = 0;
  int32_t best_of = 0;  // 0 = not given
  std::optional<int32_t> max_tokens;
  std::optional<int32_t> max_completion_tokens;

  int32_t priority = 0;
  double timeout_s = 0;  // 0 = none
  std::string cache_salt;
  bool timings = false;  // the request's waterfall in the answer

  // /v1/embeddings
  std::string pooling;  // "last" or "mean"; empty = the server's
  bool base64 = false;
  std::optional<int32_t> dimensions;

  // /tokenize and /detokenize
  std::string text;
  std::vector<int32_t> tokens;
  bool add_special_tokens = true;
  bool parse_special = true;
};

}  // namespace pelton::server
