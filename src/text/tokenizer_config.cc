#include "text/tokenizer_config.h"

#include <fmt/format.h>

#include <charconv>

#include "base/json.h"

namespace pelton::text {
namespace {

std::optional<int32_t> find_token(const PipelineParts& parts, std::string_view content) {
  for (const AddedToken& token : parts.added) {
    if (token.content == content) return token.id;
  }
  const int32_t id = parts.vocabulary->find(content);
  return id >= 0 ? std::optional<int32_t>(id) : std::nullopt;
}

// A token's text, bare or as {"content": ...}. A name that no token has is left out, as the
// reference does.
Status read_token(const JsonValue& root, std::string_view key, const PipelineParts& parts,
                  std::optional<int32_t>* id) {
  const auto value = root.get(key);
  if (!value) return {};
  auto content = value->is_object() ? value->string("content") : root.string(key);
  if (!content.ok()) return content.status();
  *id = find_token(parts, *content);
  return {};
}

// {"id": {"content": ..., "special": ...}}: tokens that the other files do not name.
Status read_added_decoder(const JsonValue& root, PipelineParts* parts) {
  const auto table = root.get("added_tokens_decoder");
  simdjson::dom::object object;
  if (!table || table->element().get(object) != simdjson::SUCCESS) return {};
  for (const auto [key, element] : object) {
    const JsonValue value(element, fmt::format("{}.{}", table->path(), key));
    auto content = value.string("content");
    if (!content.ok()) return content.status();
    int64_t id = -1;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed.ec != std::errc() || id < 0 || id >= kMaxVocabulary) {
      return value.error("the key is no token id");
    }
    auto special = value.boolean("special", false);
    if (!special.ok()) return special.status();
    const auto number = static_cast<int32_t>(id);
    if (find_token(*parts, *content) || parts->vocabulary->contains(number)) continue;
    AddedToken token;
    token.content = std::string(*content);
    token.id = number;
    token.special = *special;
    parts->added.push_back(std::move(token));
  }
  return {};
}

}  // namespace

Status apply_tokenizer_config(std::string_view config, bool own_prefix, PipelineParts* parts) {
  if (config.empty()) return {};
  auto document = JsonDocument::parse(config);
  if (!document.ok()) return document.status().with_context("tokenizer_config.json");
  const JsonValue root = document->root();
  if (!root.is_object()) return data_loss("tokenizer_config.json: expected an object");
  const auto apply = [&]() -> Status {
    if (Status s = read_added_decoder(root, parts); !s.ok()) return s;
    if (Status s = read_token(root, "bos_token", *parts, &parts->bos_id); !s.ok()) return s;
    if (Status s = read_token(root, "eos_token", *parts, &parts->eos_id); !s.ok()) return s;
    if (Status s = read_token(root, "unk_token", *parts, &parts->unk_id); !s.ok()) return s;
    if (Status s = read_token(root, "pad_token", *parts, &parts->pad_id); !s.ok()) return s;
    auto clean = root.boolean("clean_up_tokenization_spaces", false);
    if (!clean.ok()) return clean.status();
    parts->clean_up_spaces = *clean;
    if (!own_prefix) return {};
    auto add_bos = root.boolean("add_bos_token", !parts->prefix_ids.empty());
    auto add_eos = root.boolean("add_eos_token", !parts->suffix_ids.empty());
    if (!add_bos.ok()) return add_bos.status();
    if (!add_eos.ok()) return add_eos.status();
    parts->prefix_ids.clear();
    parts->suffix_ids.clear();
    if (*add_bos && parts->bos_id) parts->prefix_ids.push_back(*parts->bos_id);
    if (*add_eos && parts->eos_id) parts->suffix_ids.push_back(*parts->eos_id);
    return {};
  };
  return apply().with_context("tokenizer_config.json");
}

}  // namespace pelton::text
