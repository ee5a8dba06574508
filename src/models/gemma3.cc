// Gemma 3 text (arXiv 2503.19786): norms before and after each sublayer, norms on query and key
// heads, five layers with a sliding window and their own rotary base for each layer with full
// attention.
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
  nn::RmsNorm pre_feedforward_norm;
  nn::GatedMlp mlp;
  nn::RmsNorm post_feedforward_norm;
  bool sliding = false;
};

class Gemma3 final : public Model {
 public:
  Gemma3(const ModelConfig& config, int32_t context_len, nn::WeightLoader& loader)
      : Model(config),
        tokens_(config, "model.embed_tokens", loader),
        global_rope_(config.rope, context_len, config.max_position_embeddings, loader),
        local_rope_(config.local_rope.value_or(config.rope), context_len,
                    config.max_position_embeddings, loader) {
    for (int32_t i = 0; i < config.num_hidden_layers; ++i)
      layers_.push_back(build_layer(config, i, loader));
    norm_ = norm(config, "model.norm", config.hidden_size, loader);
  }

  Tensor forward(const nn::StepBatch& batch, const kv::KvPages& pages,
                 ops::StepContext& context) const override {
    context.layer = -1;
    const ops::RopeAngles global = global_rope_.angles(context, batch);
    const ops::RopeAngles local = local_rope_.angles(context, batch);
    const Tensor x = tokens_.embed(context, batch);
    context.trace("embedding", x);
    for (const Layer& layer : layers_) {
      const memory::StepArena::Scope scope(context.arena);
      const kernels::KvLayerView cache = pages.layer(++context.layer);
      const Rope& rope = layer.sliding ? local_rope_ : global_rope_;
      const Tensor attended =
          layer.attention.forward(context, layer.input_norm.of(x), batch, cache,
                                  layer.sliding ? &local : &global, rope.pairing());
      layer.post_attention_norm.add_to(context, attended, x);
      const Tensor fed = layer.mlp.forward(context, layer.pre_feedforward_norm.of(x));
      layer.post_feedforward_norm.add_to(context, fed, x);
      context.trace("output", x);
    }
    context.layer = -1;
    return tokens_.logits(context, norm_.forward(context, take_logit_rows(context, batch, x)));
  }

 private:
  static nn::RmsNorm norm(const ModelConfig& config, const std::string& name, int64_t size,
                          nn::WeightLoader& loader) {
    return {loader, name, size, config.norm_eps, config.norm_weight_offset};
  }

  static Layer build_layer(const ModelConfig& config, int32_t index, nn::WeightLoader& loader) {
    const std::string prefix = fmt::format("model.layers.{}.", index);
    const std::string attn = prefix + "self_attn.";
    const std::string mlp = prefix + "mlp.";
    const int64_t hidden = config.hidden_size;
    const int64_t query_size = int64_t{config.num_attention_heads} * config.head_dim;
    const int64_t kv_size = int64_t{config.num_key_value_heads} * config.head_dim;
    const int64_t inner = config.intermediate_size;
    Layer layer;
    layer.sliding =
        !config.sliding_windows.empty() && config.sliding_windows[static_cast<size_t>(index)] > 0;
    layer.input_norm = norm(config, prefix + "input_layernorm", hidden, loader);
    layer.attention = nn::Attention(
        {config.num_attention_heads, config.num_key_value_heads, config.head_dim},
        nn::Linear(
            loader,
            {{attn + "q_proj", query_size}, {attn + "k_proj", kv_size}, {attn + "v_proj", kv_size}},
            hidden, config.attention_bias),
        nn::Linear(loader, {{attn + "o_proj", hidden}}, query_size, config.attention_output_bias),
        attention_variant(config, index));
    layer.attention.set_head_norms(norm(config, attn + "q_norm", config.head_dim, loader),
                                   norm(config, attn + "k_norm", config.head_dim, loader));
    layer.post_attention_norm = norm(config, prefix + "post_attention_layernorm", hidden, loader);
    layer.pre_feedforward_norm = norm(config, prefix + "pre_feedforward_layernorm", hidden, loader);
    layer.mlp = nn::GatedMlp(
        nn::Linear(loader, {{mlp + "gate_proj", inner}, {mlp + "up_proj", inner}}, hidden, false),
        nn::Linear(loader, {{mlp + "down_proj", hidden}}, inner, false), config.hidden_act);
    layer.post_feedforward_norm =
        norm(config, prefix + "post_feedforward_layernorm", hidden, loader);
    return layer;
  }

  TokenHead tokens_;
  Rope global_rope_;
  Rope local_rope_;
  std::vector<Layer> layers_;
  nn::RmsNorm norm_;
};

}  // namespace

std::unique_ptr<Model> build_gemma3(const ModelConfig& config, int32_t context_len,
                                    nn::WeightLoader& loader) {
  return std::make_unique<Gemma3>(config, context_len, loader);
}

}  // namespace pelton::models
