#include "text/tokenizer_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/json_reader.h"

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

}  // namespace

Status apply_tokenizer_config(std::string_view config, PipelineParts* parts) {
  if (config.empty()) return {};
  auto document = JsonDocument::parse(config);
  if (!document.ok()) return document.status().with_context("tokenizer_config.json");
  const JsonValue root = document->root();
  if (!root.is_object()) return data_loss("tokenizer_config.json: expected an object");
  const auto apply = [&]() -> Status {
    if (Status s = read_token(root, "bos_token", *parts, &parts->bos_id); !s.ok()) return s;
    if (Status s = read_token(root, "eos_token", *parts, &parts->eos_id); !s.ok()) return s;
    auto clean = root.boolean("clean_up_tokenization_spaces", false);
    if (!clean.ok()) return clean.status();
    parts->clean_up_spaces = *clean;
    return {};
  };
  return apply().with_context("tokenizer_config.json");
}

}  // namespace pelton::text
