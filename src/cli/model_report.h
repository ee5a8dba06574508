// What can be said of a model from its files' headers, supported or not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "models/config.h"

namespace pelton::cli {

struct ReportedTensor {
  std::string name;
  std::string format;          // "Q4_K", "BF16", or a dtype that Pelton only steps over
  std::vector<int64_t> shape;  // outermost first
  uint64_t elements = 0;
  uint64_t bytes = 0;
};

struct ReportedFormat {
  std::string format;
  uint64_t tensors = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
};

struct ReportedValue {
  std::string key;
  std::string type;   // "string", "integer", "array of 151936 strings"
  std::string value;  // short; texts and arrays are cut
};

struct ModelReport {
  std::string path;
  std::string container;  // "GGUF v3", "safetensors"
  std::string name;
  std::string architecture;  // as the files say it
  std::optional<models::ModelConfig> config;
  std::string config_error;  // why there is none

  std::vector<ReportedTensor> tensors;  // in file order
  std::vector<ReportedFormat> formats;  // largest first
  uint64_t parameters = 0;
  uint64_t tensor_bytes = 0;
  uint64_t mapped_bytes = 0;

  std::vector<ReportedValue> metadata;  // GGUF keys, or config.json's and the safetensors' own

  std::string
      tokenizer;  // "gpt2 (pre qwen2)", "BPE", "SentencePiece file"; empty when there is none
  int64_t vocab_size = 0;
  int64_t merges = 0;
  std::string chat_template;  // whole; empty when there is none
};

// `path`: a GGUF file, a .safetensors file or a Hugging Face folder. An unreadable model file is an
// error; a configuration that Pelton does not support is part of the report.
Result<ModelReport> report_model(const std::filesystem::path& path);

// The longest beginning of at most `max_bytes` that does not end inside a character.
std::string_view utf8_prefix(std::string_view text, size_t max_bytes);

}  // namespace pelton::cli
