// Tokenizers from a Hugging Face folder.
#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "text/model_file.h"
#include "text/tokenizer.h"

namespace pelton::text {
namespace {

constexpr uint64_t kMaxFile = kMaxJsonBytes;

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_folder(
    const std::filesystem::path& folder) {
  std::error_code error;
  std::string config;
  if (const auto path = folder / "tokenizer_config.json"; std::filesystem::exists(path, error)) {
    auto text = read_file(path, kMaxFile);
    if (!text.ok()) return text.status();
    config = std::move(*text);
  }
  if (const auto path = folder / "tokenizer.json"; std::filesystem::exists(path, error)) {
    auto text = read_file(path, kMaxFile);
    if (!text.ok()) return text.status();
    auto made = from_json(*text, config);
    if (!made.ok()) return made.status().with_context(path.string());
    return made;
  }
  for (const std::string_view name : {"tokenizer.model", "qwen.tiktoken"}) {
    const auto path = folder / name;
    if (!std::filesystem::exists(path, error)) continue;
    auto content = read_file(path, kMaxFile);
    if (!content.ok()) return content.status();
    auto made = looks_like_tiktoken(*content) ? from_tiktoken(*content, config)
                                              : from_sentencepiece(*content, config);
    if (!made.ok()) return made.status().with_context(path.string());
    return made;
  }
  return not_found(fmt::format("{}: neither tokenizer.json nor tokenizer.model", folder.string()));
}

}  // namespace pelton::text
