// The vocabulary in a GGUF file's metadata, for this folder's tests and tool only: the library
// itself does not read model files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "text/tokenizer.h"
#include "weights/gguf.h"

namespace pelton::text {

inline Result<GgufVocabulary> read_gguf_vocabulary(const std::filesystem::path& path) {
  auto file = weights::GgufFile::open(path);
  if (!file.ok()) return file.status();
  const auto& f = **file;
  GgufVocabulary v;
  const auto text = [&](const char* key) {
    auto value = f.get_string(key);
    return value.ok() && *value ? **value : std::string();
  };
  const auto id = [&](const char* key) -> std::optional<int64_t> {
    auto value = f.get_int(key);
    return value.ok() ? *value : std::nullopt;
  };
  const auto flag = [&](const char* key) -> std::optional<bool> {
    auto value = f.get_bool(key);
    return value.ok() ? *value : std::nullopt;
  };
  v.model = text("tokenizer.ggml.model");
  v.pre = text("tokenizer.ggml.pre");
  if (const auto* a = f.get_strings("tokenizer.ggml.tokens")) v.tokens = *a;
  if (const auto* a = f.get_strings("tokenizer.ggml.merges")) v.merges = *a;
  if (const auto* a = f.get_floats("tokenizer.ggml.scores")) v.scores = *a;
  if (const auto* a = f.get_ints("tokenizer.ggml.token_type")) v.token_types = *a;
  v.bos_id = id("tokenizer.ggml.bos_token_id");
  v.eos_id = id("tokenizer.ggml.eos_token_id");
  v.eot_id = id("tokenizer.ggml.eot_token_id");
  v.unknown_id = id("tokenizer.ggml.unknown_token_id");
  v.add_bos = flag("tokenizer.ggml.add_bos_token");
  v.add_eos = flag("tokenizer.ggml.add_eos_token");
  v.add_space_prefix = flag("tokenizer.ggml.add_space_prefix");
  return v;
}

}  // namespace pelton::text
