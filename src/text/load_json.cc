// Tokenizers from a tokenizer.json document.
#include <fmt/format.h>

#include <unordered_map>

#include "text/components.h"
#include "text/tokenizer_config.h"

namespace pelton::text {
namespace {

constexpr size_t kMaxAddedTokens = 1'000'000;

Result<AddedToken> read_added_token(const JsonValue& value) {
  auto content = value.string("content");
  auto id = value.integer("id");
  if (!content.ok()) return content.status();
  if (!id.ok()) return id.status();
  if (*id < 0 || *id >= kMaxVocabulary) return value.error_at("id", "outside the vocabulary");
  if (content->size() > kMaxTokenBytes) return value.error_at("content", "too long");
  AddedToken token;
  token.content = std::string(*content);
  token.id = static_cast<int32_t>(*id);
  auto special = value.boolean("special", false);
  if (!special.ok()) return special.status();
  token.special = *special;
  bool* const flags[] = {&token.single_word, &token.lstrip, &token.rstrip, &token.normalized};
  const std::string_view names[] = {"single_word", "lstrip", "rstrip", "normalized"};
  for (int i = 0; i < 4; ++i) {
    auto flag = value.boolean(names[i], i == 3 && !token.special);
    if (!flag.ok()) return flag.status();
    *flags[i] = *flag;
  }
  return token;
}

Status read_added_tokens(const JsonValue& root, std::vector<AddedToken>* added) {
  if (!root.get("added_tokens")) return {};
  auto items = root.items("added_tokens");
  if (!items.ok()) return items.status();
  if (items->size() > kMaxAddedTokens) return root.error_at("added_tokens", "too many");
  for (const JsonValue& item : *items) {
    auto token = read_added_token(item);
    if (!token.ok()) return token.status();
    added->push_back(std::move(*token));
  }
  return {};
}

// Every token has one id and every id one token, in the model and in the added tokens together.
Status check_added_tokens(const PipelineParts& parts) {
  std::unordered_map<int32_t, std::string_view> seen;
  for (const AddedToken& token : parts.added) {
    const auto [at, fresh] = seen.emplace(token.id, token.content);
    const int32_t known = parts.vocabulary->find(token.content);
    const bool taken =
        parts.vocabulary->contains(token.id) && parts.vocabulary->piece(token.id) != token.content;
    if ((!fresh && at->second != token.content) || taken || (known >= 0 && known != token.id)) {
      return data_loss(
          fmt::format("added_tokens: \"{}\" has the id {}, which does not agree with "
                      "the rest of the vocabulary",
                      token.content, token.id));
    }
  }
  return {};
}

// Whether a BPE model over the byte alphabet may as well work on bytes.
bool spelled_plainly(const JsonValue& model) {
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    auto text = model.string_or(key, "");
    if (!text.ok() || !text->empty()) return false;
  }
  auto fallback = model.boolean("byte_fallback", false);
  return fallback.ok() && !*fallback;
}

Result<std::shared_ptr<const Tokenizer>> load(const JsonValue& root, std::string_view config) {
  PipelineParts parts;
  if (Status s = read_added_tokens(root, &parts.added); !s.ok()) return s;
  const auto model = root.get("model");
  if (!model) return root.error_at("model", "missing");
  const auto pre_tokenizer = root.get("pre_tokenizer");
  const bool byte_level = pre_tokenizer && ends_in_byte_level(*pre_tokenizer) &&
                          model->get("merges") && spelled_plainly(*model);
  if (Status s = read_model(*model, byte_level, &parts); !s.ok()) return s;
  if (Status s = check_added_tokens(parts); !s.ok()) return s;
  if (const auto value = root.get("normalizer")) {
    auto normalizer = read_normalizer(*value);
    if (!normalizer.ok()) return normalizer.status();
    parts.normalizer = std::move(*normalizer);
  }
  if (pre_tokenizer) {
    auto made = read_pre_tokenizer(*pre_tokenizer, byte_level);
    if (!made.ok()) return made.status();
    parts.pre_tokenizer = std::move(*made);
  }
  if (const auto value = root.get("post_processor")) {
    if (Status s = read_post_processor(*value, &parts); !s.ok()) return s;
  }
  if (const auto value = root.get("decoder")) {
    if (Status s = read_decoder(*value, &parts.decoder); !s.ok()) return s;
  } else {
    parts.decoder.push_back(join_decoder());
  }
  if (Status s = apply_tokenizer_config(config, false, &parts); !s.ok()) return s;
  return make_pipeline(std::move(parts));
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view document,
                                                              std::string_view config) {
  auto parsed = JsonDocument::parse(document);
  if (!parsed.ok()) return parsed.status();
  return load(parsed->root(), config);
}

}  // namespace pelton::text
