// One architecture: weights and a forward that reads like its equation. Immutable after building;
// shared by every step.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kv/pages/kv_pages.h"
#include "models/config.h"
#include "nn/step_batch.h"
#include "nn/weight_loader.h"
#include "ops/step_context.h"

namespace pelton::models {

class Model {
 public:
  explicit Model(ModelConfig config) : config_(std::move(config)) {}
  virtual ~Model() = default;

  const ModelConfig& config() const { return config_; }

  // Runs the batch through every layer, appending its keys and values to `pages`. Returns the
  // logits of batch.logit_rows, [logit_rows, vocab_size] f32, in the step's arena.
  virtual Tensor forward(const nn::StepBatch& batch, const kv::KvPages& pages,
                         ops::StepContext& context) const = 0;

 private:
  ModelConfig config_;
};

// Cache shape that the architecture needs, a layer at a time.
std::vector<kv::KvLayerShape> kv_shape(const ModelConfig& config);

// Builds the architecture that config.model_type names. `context_len` is the longest context that
// will run (dynamic and LongRoPE frequencies depend on it). Errors name the tensor.
Result<std::unique_ptr<Model>> build_model(const ModelConfig& config, int32_t context_len,
                                           nn::WeightLoader& loader);

// The file's name of a Hugging Face tensor name, for the GGUF convention.
std::string gguf_tensor_name(std::string_view model_type, std::string_view hugging_face_name);

}  // namespace pelton::models
