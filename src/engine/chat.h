// A conversation as prompt ids: the model's own template, its markup as control tokens, what people
// wrote as plain text.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/model_files.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pelton::engine {

class ChatFormatter {
 public:
  // kUnsupported when the model has no chat template; compile errors name line and construct.
  static Result<ChatFormatter> create(const ModelFiles& files,
                                      std::shared_ptr<const text::Tokenizer> tokenizer);

  struct Conversation {
    Json messages = Json::array();  // [{"role", "content", ...}]
    Json tools;                     // null or a list
    bool add_generation_prompt = true;
    Json extra = Json::object();  // further template variables (enable_thinking, ...)
  };
  Result<std::string> render(const Conversation& conversation) const;
  // Special tokens come from the template alone: none are added around it, and control-token text
  // inside message content stays plain text.
  Result<std::vector<int32_t>> prompt_ids(const Conversation& conversation) const;

 private:
  ChatFormatter() = default;
  Json context(const Conversation& conversation) const;
  std::shared_ptr<const text::ChatTemplate> template_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
};

}  // namespace pelton::engine
