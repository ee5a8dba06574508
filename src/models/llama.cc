// Llama and its siblings (arXiv 2302.13971): pre-norm, rotary attention, gated MLP. Mistral adds a
// window, Qwen2 biases on query, key and value, Qwen3 norms on query and key heads, Phi-3 fused
// weights.
#include <fmt/format.h>

#include <vector>

#include "models/architectures.h"
#include "models/parts.h"
#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace pelton::models {
namespace {

struct Layer {
  nn::RmsNorm input_norm;
  nn::Attention attention;
  nn::RmsNorm post_attention_norm;
  nn::GatedMlp mlp;
};

nn::Attention build_attention(const ModelConfig& config, int32_t index, const std::string& prefix,
                              nn::WeightLoader& loader) {
  const int64_t query_size = int64_t{config.num_attention_heads} * config.head_dim;
  const int64_t kv_size = int64_t{config.num_key_value_heads} * config.head_dim;
  const bool fused = loader.has(prefix + "qkv_proj.weight");
  nn::Linear qkv = fused ? nn::Linear(loader, {{prefix + "qkv_proj", query_size + 2 * kv_size}},
                                      config.hidden_size, config.attention_bias)
                         : nn::Linear(loader,
                                      {{prefix + "q_proj", query_size},
                                       {prefix + "k_proj", kv_size},
                                       {prefix + "v_proj", kv_size}},
                                      config.hidden_size, config.attention_bias);
  nn::Linear output(loader, {{prefix + "o_proj", config.hidden_size}}, query_size,
                    config.attention_output_bias);
  nn::Attention attention({config.num_attention_heads, config.num_key_value_heads, config.head_dim},
                          std::move(qkv), std::move(output), attention_variant(config, index));
  if (config.qk_norm) {
    attention.set_head_norms(
        nn::RmsNorm(loader, prefix + "q_norm", config.head_dim, config.norm_eps),
        nn::RmsNorm(loader, prefix + "k_norm", config.head_dim, config.norm_eps));
  }
  return attention;
}

nn::GatedMlp build_mlp(const ModelConfig& config, const std::string& prefix,
                       nn::WeightLoader& loader) {
  const bool fused = loader.has(prefix + "gate_up_proj.weight");
  nn::Linear gate_up =
      fused ? nn::Linear(loader, {{prefix + "gate_up_proj", 2 * int64_t{config.intermediate_size}}},
                         config.hidden_size, config.mlp_bias)
            : nn::Linear(loader,
                         {{prefix + "gate_proj", config.intermediate_size},
                          {prefix + "up_proj", config.intermediate_size}},
                         config.hidden_size, config.mlp_bias);
  nn::Linear down(loader, {{prefix + "down_proj", config.hidden_size}}, config.intermediate_size,
                  config.mlp_bias);
  return {std::move(gate_up), std::move(down), config.hidden_act};
}

class Llama final : public Model {
 public:
  Llama(const ModelConfig& config, int32_t context_len, nn::WeightLoader& loader)
      : Model(config),
        tokens_(config, "model.embed_tokens", loader),
        rope_(config.rope, context_len, config.max_position_embeddings, loader) {
    for (int32_t i = 0; i < config.num_hidden_layers; ++i) {
      const std::string prefix = fmt::format("model.layers.{}.", i);
      layers_.push_back(
          {.input_norm =
               nn::RmsNorm(loader, prefix + "input_layernorm", config.hidden_size, config.norm_eps),
           .attention = build_attention(config, i, prefix + "self_attn.", loader),
           .post_attention_norm = nn::RmsNorm(loader, prefix + "post_attention_layernorm",
                                              config.hidden_size, config.norm_eps),
           .mlp = build_mlp(config, prefix + "mlp.", loader)});
    }
    norm_ = nn::RmsNorm(loader, "model.norm", config.hidden_size, config.norm_eps);
  }

  Tensor forward(const nn::StepBatch& batch, const kv::KvPages& pages,
                 ops::StepContext& context) const override {
    context.layer = -1;
    const ops::RopeAngles angles = rope_.angles(context, batch);
    const Tensor x = tokens_.embed(context, batch);
    context.trace("embedding", x);
    for (const Layer& layer : layers_) {
      const memory::StepArena::Scope scope(context.arena);
      const kernels::KvLayerView cache = pages.layer(++context.layer);
      layer.attention.add_to(context, layer.input_norm.of(x), batch, cache, &angles,
                             rope_.pairing(), x);
      layer.mlp.add_to(context, layer.post_attention_norm.of(x), x);
      context.trace("output", x);
    }
    context.layer = -1;
    return tokens_.logits(context, norm_.forward(context, take_logit_rows(context, batch, x)));
  }

 private:
  TokenHead tokens_;
  Rope rope_;
  std::vector<Layer> layers_;
  nn::RmsNorm norm_;
};

}  // namespace

std::unique_ptr<Model> build_llama(const ModelConfig& config, int32_t context_len,
                                   nn::WeightLoader& loader) {
  return std::make_unique<Llama>(config, context_len, loader);
}

}  // namespace pelton::models
