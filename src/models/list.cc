#include <algorithm>
#include <array>

#include "models/architectures.h"

namespace pelton::models {
namespace {

struct Architecture {
  std::string_view model_type;
  std::unique_ptr<Model> (*build)(const ModelConfig&, int32_t, nn::WeightLoader&);
};

constexpr std::array<Architecture, 8> kArchitectures = {{
    {"llama", build_llama},
    {"mistral", build_llama},
    {"qwen2", build_llama},
    {"qwen3", build_llama},
    {"phi3", build_llama},
    {"gemma3_text", build_gemma3},
    {"gpt2", build_gpt2},
    {"gpt_bigcode", build_gpt2},
}};

}  // namespace

std::vector<kv::KvLayerShape> kv_shape(const ModelConfig& config) {
  return {static_cast<size_t>(config.num_hidden_layers),
          {config.num_key_value_heads, config.head_dim}};
}

Result<std::unique_ptr<Model>> build_model(const ModelConfig& config, int32_t context_len,
                                           nn::WeightLoader& loader) {
  const auto* found =
      std::find_if(kArchitectures.begin(), kArchitectures.end(),
                   [&](const Architecture& a) { return a.model_type == config.model_type; });
  if (found == kArchitectures.end())
    return unsupported("architecture '" + config.model_type + "' is not known");
  std::unique_ptr<Model> model = found->build(config, context_len, loader);
  if (!loader.status().ok()) return loader.status();
  return model;
}

}  // namespace pelton::models
