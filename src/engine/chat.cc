#include "engine/chat.h"

#include <utility>

namespace pelton::engine {

Result<ChatFormatter> ChatFormatter::create(const ModelFiles& files,
                                            std::shared_ptr<const text::Tokenizer> tokenizer) {
  if (files.chat_template().empty())
    return unsupported(files.path() + ": the model has no chat template");
  auto compiled = text::ChatTemplate::compile(files.chat_template());
  if (!compiled.ok()) return compiled.status().with_context(files.path() + ": chat template");
  ChatFormatter formatter;
  formatter.template_ = std::move(compiled).value();
  formatter.tokenizer_ = std::move(tokenizer);
  return formatter;
}

Json ChatFormatter::context(const Conversation& conversation) const {
  Json context = conversation.extra;
  context["messages"] = conversation.messages;
  // None where there are none: templates ask "tools is not none", and of what is undefined that is
  // true.
  context["tools"] = conversation.tools;
  if (!context.contains("documents")) context["documents"] = Json();
  context["add_generation_prompt"] = conversation.add_generation_prompt;
  const auto set_token = [&](const char* name, std::optional<int32_t> id) {
    if (id) context[name] = std::string(tokenizer_->piece(*id));
  };
  set_token("bos_token", tokenizer_->bos_id());
  set_token("eos_token", tokenizer_->eos_id());
  set_token("unk_token", tokenizer_->unk_id());
  set_token("pad_token", tokenizer_->pad_id());
  return context;
}

Result<std::string> ChatFormatter::render(const Conversation& conversation) const {
  return template_->render(context(conversation));
}

Result<std::vector<int32_t>> ChatFormatter::prompt_ids(const Conversation& conversation) const {
  Conversation normal = conversation;
  if (Status s = text::normalize_messages(&normal.messages); !s.ok()) return s;
  auto pieces = template_->render_pieces(context(normal));
  if (!pieces.ok()) return pieces.status();
  // One text, so that tokens may span the border between markup and content as in the reference;
  // only the search for control tokens leaves the users' ranges out.
  std::string prompt;
  std::vector<text::TextRange> plain;
  for (const text::ChatTemplate::Piece& piece : *pieces) {
    if (piece.from_user && !piece.text.empty())
      plain.push_back({prompt.size(), prompt.size() + piece.text.size()});
    prompt += piece.text;
  }
  return tokenizer_->encode(
      prompt, {.add_special_tokens = false, .parse_special = true, .plain_ranges = plain});
}

}  // namespace pelton::engine
