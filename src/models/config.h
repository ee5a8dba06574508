// What a model file says of its architecture, in Hugging Face's names, from config.json or from
// GGUF metadata. Every field is cross-checked against the tensors before memory is taken.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/elementwise.h"

namespace pelton::weights {
class GgufFile;
}

namespace pelton::models {

enum class RopeScaling { kNone, kLinear, kDynamic, kYarn, kLlama3, kLongRope };

struct RopeConfig {
  float theta = 10000.0f;
  int32_t rotary_dim = 0;  // elements of a head that rotate
  ops::RopePairing pairing = ops::RopePairing::kHalves;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1.0f;
  int32_t original_max_position_embeddings = 0;
  float low_freq_factor = 1.0f;                      // llama3
  float high_freq_factor = 4.0f;                     // llama3
  float beta_fast = 32.0f;                           // yarn
  float beta_slow = 1.0f;                            // yarn
  bool truncate = true;                              // yarn: whole dimensions bound the ramp
  std::optional<float> attention_factor{};           // yarn, longrope
  std::optional<float> mscale{}, mscale_all_dim{};   // yarn
  std::vector<float> short_factor{}, long_factor{};  // longrope
  std::vector<float> freq_factors{};  // GGUF rope_freqs.weight: divides each inverse frequency
};

struct ModelConfig {
  std::string model_type;  // Hugging Face's: "llama", "mistral", "qwen2", "qwen3", "gemma3_text",
                           // "phi3", "gpt2", "gpt_bigcode"
  int32_t hidden_size = 0;
  int32_t num_hidden_layers = 0;
  int32_t num_attention_heads = 0;
  int32_t num_key_value_heads = 0;
  int32_t head_dim = 0;
  int32_t intermediate_size = 0;
  int32_t vocab_size = 0;
  int32_t max_position_embeddings = 0;
  float norm_eps = 1e-6f;  // rms_norm_eps or layer_norm_epsilon
  ops::Activation hidden_act = ops::Activation::kSilu;
  bool tie_word_embeddings = false;

  bool attention_bias = false;  // q, k, v
  bool attention_output_bias = false;
  bool mlp_bias = false;
  bool transposed_linears =
      false;                     // the file holds [in_features, out_features] (GPT-2's safetensors)
  bool qk_norm = false;          // RMS norm of each query and key head
  float attention_scale = 0.0f;  // multiplies q.k
  float attn_logit_softcapping = 0.0f;
  float final_logit_softcapping = 0.0f;
  float embedding_scale = 1.0f;
  float norm_weight_offset = 0.0f;  // Gemma in safetensors stores weight - 1

  RopeConfig rope;
  std::optional<RopeConfig> local_rope;  // of sliding layers, where it differs (Gemma 3)
  std::vector<int32_t> sliding_windows;  // one a layer; 0 = full attention

  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;
};

// Every value returned lies in its range and agrees with the others (config_checks.h); a file that
// asks for what these architectures cannot do here is refused with one line naming path and key.
// The readers of tensors fill rope.freq_factors (rope_freqs.weight) and, for GGUF LongRoPE,
// short_factor and long_factor (rope_factors_short.weight, rope_factors_long.weight), each of
// rotary_dim / 2 values.
Result<ModelConfig> config_from_gguf(const weights::GgufFile& file);
// `document` is config.json's text; `path` for messages.
Result<ModelConfig> config_from_json(std::string_view document, std::string_view path);

// inv_freq [rotary_dim / 2] and the magnitude of cos and sin, for a context of `context_len`
// (dynamic and LongRoPE depend on it), as transformers' modeling_rope_utils computes them.
struct RopeFrequencies {
  std::vector<float> inv_freq;
  float magnitude = 1.0f;
};
RopeFrequencies rope_frequencies(const RopeConfig& config, int32_t context_len,
                                 int32_t max_position_embeddings);

}  // namespace pelton::models
