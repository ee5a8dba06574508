// One builder an architecture file; list.cc maps model_type to them.
#pragma once

#include "models/model.h"

namespace pelton::models {

// Llama, Mistral, Qwen2, Qwen3, Phi-3: they differ by configuration values only.
std::unique_ptr<Model> build_llama(const ModelConfig& config, int32_t context_len,
                                   nn::WeightLoader& loader);
std::unique_ptr<Model> build_gemma3(const ModelConfig& config, int32_t context_len,
                                    nn::WeightLoader& loader);
// GPT-2 and GPT-BigCode.
std::unique_ptr<Model> build_gpt2(const ModelConfig& config, int32_t context_len,
                                  nn::WeightLoader& loader);

}  // namespace pelton::models
