// GPT-2 and GPT-BigCode (arXiv 1911.02150 for its single KV head): layer norms with bias, learned
// positions, plain MLP.
#include <fmt/format.h>

#include <vector>

#include "models/architectures.h"
#include "models/parts.h"
#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/must.h"
#include "nn/norm.h"

namespace pelton::models {
namespace {

struct Layer {
  nn::LayerNorm attention_norm;
  nn::Attention attention;
  nn::LayerNorm mlp_norm;
  nn::PlainMlp mlp;
};

class Gpt2 final : public Model {
 public:
  Gpt2(const ModelConfig& config, nn::WeightLoader& loader)
      : Model(config),
        tokens_(config, "transformer.wte", loader),
        positions_(loader.embedding("transformer.wpe.weight", config.max_position_embeddings,
                                    config.hidden_size, false)) {
    for (int32_t i = 0; i < config.num_hidden_layers; ++i)
      layers_.push_back(build_layer(config, i, loader));
    norm_ = nn::LayerNorm(loader, "transformer.ln_f", config.hidden_size, config.norm_eps);
  }

  Tensor forward(const nn::StepBatch& batch, const kv::KvPages& pages,
                 ops::StepContext& context) const override {
    context.layer = -1;
    const Tensor x = tokens_.embed(context, batch);
    add_positions(context, batch, x);
    context.trace("embedding", x);
    for (const Layer& layer : layers_) {
      const memory::StepArena::Scope scope(context.arena);
      const kernels::KvLayerView cache = pages.layer(++context.layer);
      layer.attention.add_to(context, layer.attention_norm.forward(context, x), batch, cache,
                             nullptr, ops::RopePairing::kHalves, x);
      layer.mlp.add_to(context, layer.mlp_norm.forward(context, x), x);
      context.trace("output", x);
    }
    context.layer = -1;
    return tokens_.logits(context, norm_.forward(context, take_logit_rows(context, batch, x)));
  }

 private:
  void add_positions(ops::StepContext& context, const nn::StepBatch& batch, const Tensor& x) const {
    const memory::StepArena::Scope scope(context.arena);
    const Tensor positions = context.arena.rows(DType::kF32, x.num_rows(), x.row_elements());
    nn::must(
        ops::embedding(context, {.table = &positions_, .ids = batch.positions, .out = positions}));
    nn::must(ops::add(context, x, positions));
  }

  static Layer build_layer(const ModelConfig& config, int32_t index, nn::WeightLoader& loader) {
    const std::string prefix = fmt::format("transformer.h.{}.", index);
    // GPT-2's safetensors hold [in_features, out_features]; GPT-BigCode's and every GGUF file the
    // other way round.
    const bool transposed = config.transposed_linears;
    const int64_t hidden = config.hidden_size;
    const int64_t inner = config.intermediate_size;
    const int64_t qkv =
        (int64_t{config.num_attention_heads} + 2 * int64_t{config.num_key_value_heads}) *
        config.head_dim;
    return {.attention_norm = nn::LayerNorm(loader, prefix + "ln_1", hidden, config.norm_eps),
            .attention = nn::Attention(
                {config.num_attention_heads, config.num_key_value_heads, config.head_dim},
                nn::Linear(loader, {{prefix + "attn.c_attn", qkv}}, hidden, true, transposed),
                nn::Linear(loader, {{prefix + "attn.c_proj", hidden}}, hidden, true, transposed),
                attention_variant(config, index)),
            .mlp_norm = nn::LayerNorm(loader, prefix + "ln_2", hidden, config.norm_eps),
            .mlp = nn::PlainMlp(
                nn::Linear(loader, {{prefix + "mlp.c_fc", inner}}, hidden, true, transposed),
                nn::Linear(loader, {{prefix + "mlp.c_proj", hidden}}, inner, true, transposed),
                config.hidden_act)};
  }

  TokenHead tokens_;
  kernels::WeightMatrix positions_;
  std::vector<Layer> layers_;
  nn::LayerNorm norm_;
};

}  // namespace

std::unique_ptr<Model> build_gpt2(const ModelConfig& config, int32_t /*context_len*/,
                                  nn::WeightLoader& loader) {
  return std::make_unique<Gpt2>(config, loader);
}

}  // namespace pelton::models
