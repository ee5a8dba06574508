// A model as it lies on disk, opened but not loaded: weights' headers, configuration, tokenizer,
// template, defaults.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "models/config.h"
#include "models/model.h"
#include "pelton/sampling_params.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "weights/gguf.h"
#include "weights/weight_source.h"

namespace pelton::engine {

class ModelFiles {
 public:
  // A GGUF file or a Hugging Face folder. Reads headers only. A bare name is looked up in the
  // folders of `search_path` (colon-separated) after the working directory.
  static Result<std::unique_ptr<ModelFiles>> open(const std::filesystem::path& path,
                                                  std::string_view search_path = {});

  // A known shape (models/shapes.h) with random weights; `layers` 0: its own depth. Its tokenizer
  // has ids and no text.
  static Result<std::unique_ptr<ModelFiles>> from_shape(std::string_view shape, int32_t layers = 0);

  const std::string& path() const { return source_->path(); }
  const weights::WeightSource& source() const { return *source_; }
  // No file holds the weights: they are made when they are loaded.
  bool synthetic() const { return synthetic_; }
  // Null for a folder and for a shape.
  const weights::GgufFile* gguf() const { return gguf_; }
  const models::ModelConfig& config() const { return config_; }
  nn::WeightLoader::NameMap name_map() const;

  Result<std::shared_ptr<const text::Tokenizer>> load_tokenizer() const;
  // Empty when the model has none.
  const std::string& chat_template() const { return chat_template_; }
  // Sampling defaults of generation_config.json; neutral where the file is silent.
  const SamplingParams& default_sampling() const { return default_sampling_; }
  // A name for people: general.name, else the file's or folder's.
  std::string display_name() const;

 private:
  ModelFiles() = default;
  Status read_folder(const std::filesystem::path& folder);
  Status read_gguf();
  Status read_rope_factors();

  std::unique_ptr<weights::WeightSource> source_;
  const weights::GgufFile* gguf_ = nullptr;
  std::filesystem::path folder_;
  bool synthetic_ = false;
  models::ModelConfig config_;
  std::string chat_template_;
  SamplingParams default_sampling_;
};

}  // namespace pelton::engine
