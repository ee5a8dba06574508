// text_completion objects.
#include <algorithm>
#include <map>
#include <utility>

#include "server/answer_format.h"
#include "server/json_writer.h"

namespace pelton::server {
namespace {

// Characters, as clients count offsets.
int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

class CompletionFormat final : public OpenAiFormat {
 public:
  CompletionFormat(AnswerInfo info, std::vector<EchoedPrompt> echoes)
      : OpenAiFormat(std::move(info)), echoes_(std::move(echoes)) {}

  void begin(std::string*) override {}

  void delta(int32_t choice, const TokenEvent& event, std::string* out) override {
    take_prompt_logprobs(choice, event.prompt_logprobs);
    const bool first = begun_.try_emplace(choice, true).second;
    std::string text = first ? echo_text(choice) : std::string();
    text += event.text;
    if (!text.empty() || (info_.logprobs && !event.logprobs.empty())) {
      std::vector<TokenLogprobs> tokens;
      if (info_.logprobs) tokens = joined(first ? choice : -1, event.logprobs);
      chunk(choice, text, tokens, FinishReason::kNone, out);
    }
    if (event.finish != FinishReason::kNone) chunk(choice, "", {}, event.finish, out);
  }

  std::string whole(const std::vector<Choice>& choices, const Usage& usage,
                    const std::string& timings) override {
    for (size_t i = 0; i < choices.size(); ++i)
      take_prompt_logprobs(static_cast<int32_t>(i), choices[i].prompt_logprobs);
    JsonWriter json;
    head(false, json);
    json.key("choices").begin_array();
    for (size_t i = 0; i < choices.size(); ++i) {
      const auto choice = static_cast<int32_t>(i);
      const Choice& c = choices[i];
      write_choice(choice, echo_text(choice) + c.text,
                   info_.logprobs ? joined(choice, c.logprobs) : std::vector<TokenLogprobs>(),
                   c.finish, json);
    }
    json.end_array();
    write_usage(usage, json.key("usage"));
    if (!timings.empty()) json.key("timings").raw(timings);
    json.end_object();
    return json.take();
  }

 private:
  void take_prompt_logprobs(int32_t choice, const std::vector<TokenLogprobs>& tokens) {
    if (!tokens.empty()) prompt_logprobs_[choice / info_.n] = tokens;
  }

  std::string echo_text(int32_t choice) const {
    return echoes_.empty() ? std::string() : echoes_[static_cast<size_t>(choice / info_.n)].text;
  }

  // Log-probabilities of the prompt's tokens, where they are echoed, and of the answer's.
  std::vector<TokenLogprobs> joined(int32_t choice, const std::vector<TokenLogprobs>& own) const {
    std::vector<TokenLogprobs> all;
    if (!echoes_.empty() && choice >= 0) {
      const std::vector<int32_t>& ids = echoes_[static_cast<size_t>(choice / info_.n)].ids;
      const auto found = prompt_logprobs_.find(choice / info_.n);
      if (found != prompt_logprobs_.end()) all = found->second;
      all.resize(ids.size());
      for (size_t i = 0; i < ids.size(); ++i) {
        if (i == 0 || all[i].chosen.token < 0)
          all[i] = {.chosen = {.token = -1 - ids[i]}, .top = {}};
      }
    }
    all.insert(all.end(), own.begin(), own.end());
    return all;
  }

  void head(bool, JsonWriter& json) const override {
    json.begin_object().field("id", info_.id).field("object", "text_completion");
    json.field("created", info_.created).field("model", info_.model);
  }

  void chunk(int32_t choice, const std::string& text, const std::vector<TokenLogprobs>& tokens,
             FinishReason finish, std::string* out) {
    JsonWriter json = begin_chunk();
    json.key("choices").begin_array();
    write_choice(choice, text, tokens, finish, json);
    json.end_array();
    if (info_.include_usage) json.key("usage").null();
    json.end_object();
    append_sse("", json.text(), out);
  }

  void write_choice(int32_t choice, const std::string& text,
                    const std::vector<TokenLogprobs>& tokens, FinishReason finish,
                    JsonWriter& json) {
    json.begin_object().field("index", int64_t{choice}).field("text", text);
    json.key("logprobs");
    if (info_.logprobs && !tokens.empty()) {
      write_logprobs(choice, tokens, json);
    } else {
      json.null();
    }
    write_finish(finish, json.key("finish_reason"));
    json.end_object();
  }

  std::string piece(int32_t token) const { return info_.tokenizer->decode({token}, false); }

  // A prompt's first token has no prediction; joined() marks it by a negative number.
  static int32_t id_of(const TokenLogprobs& token) {
    return token.chosen.token < 0 ? -1 - token.chosen.token : token.chosen.token;
  }

  void write_logprobs(int32_t choice, const std::vector<TokenLogprobs>& tokens, JsonWriter& json) {
    json.begin_object().key("tokens").begin_array();
    for (const TokenLogprobs& token : tokens) json.string(piece(id_of(token)));
    json.end_array().key("token_logprobs").begin_array();
    for (const TokenLogprobs& token : tokens)
      token.chosen.token < 0 ? json.null() : json.number(token.chosen.logprob);
    json.end_array().key("top_logprobs").begin_array();
    for (const TokenLogprobs& token : tokens) write_top(token, json);
    json.end_array().key("text_offset").begin_array();
    int64_t& offset = offsets_[choice];
    for (const TokenLogprobs& token : tokens) {
      json.integer(offset);
      offset += characters(piece(id_of(token)));
    }
    json.end_array().end_object();
  }

  void write_top(const TokenLogprobs& token, JsonWriter& json) const {
    if (token.chosen.token < 0) {
      json.null();
      return;
    }
    // An object by text: of tokens that read alike the likeliest stays.
    std::map<std::string, float> seen;
    json.begin_object();
    for (const TokenLogprob& top : token.top) {
      const std::string text = piece(top.token);
      if (seen.insert({text, top.logprob}).second) json.key(text).number(top.logprob);
    }
    const std::string chosen = piece(token.chosen.token);
    if (!seen.contains(chosen)) json.key(chosen).number(token.chosen.logprob);
    json.end_object();
  }

  std::vector<EchoedPrompt> echoes_;
  std::map<int32_t, bool> begun_;
  std::map<int32_t, int64_t> offsets_;
  std::map<int32_t, std::vector<TokenLogprobs>> prompt_logprobs_;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_completion_format(AnswerInfo info,
                                                     std::vector<EchoedPrompt> echoes) {
  return std::make_unique<CompletionFormat>(std::move(info), std::move(echoes));
}

}  // namespace pelton::server
