#include "models/shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace pelton::models {
namespace {

struct Shape {
  std::string_view name;
  std::string_view model_type;
  int32_t layers;
  int32_t hidden_size;
  int32_t intermediate_size;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t vocab_size;
  int32_t positions;
  double rope_theta;
  double norm_eps;
  bool tied;
  std::string_view rope_scaling = "null";
};

constexpr std::string_view kLlama31Rope =
    R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
    R"("original_max_position_embeddings":8192})";
constexpr std::string_view kLlama32Rope =
    R"({"rope_type":"llama3","factor":32.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
    R"("original_max_position_embeddings":8192})";

constexpr Shape kShapes[] = {
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5, 1e-5, false,
     kLlama31Rope},
    {"llama-3.1-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 131072, 5e5, 1e-5, false,
     kLlama31Rope},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5, 1e-5, true,
     kLlama32Rope},
    {"llama-3.2-3b", "llama", 28, 3072, 8192, 24, 8, 128, 128256, 131072, 5e5, 1e-5, true,
     kLlama32Rope},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6, 1e-6, false},
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6, 1e-6, true},
    {"qwen2.5-7b", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 32768, 1e6, 1e-6, false},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e6, 1e-6, true},
    {"mistral-7b", "mistral", 32, 4096, 14336, 32, 8, 128, 32768, 32768, 1e6, 1e-5, false},
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5, 1e-5, true},
};

// Uniform in +-spread has this variance: the product with `columns` values keeps theirs.
float spread_of(int64_t columns) { return std::sqrt(3.0f / static_cast<float>(columns)); }

class TensorList {
 public:
  void matrix(const std::string& name, int64_t rows, int64_t columns, bool bias = false) {
    tensors.push_back({name + ".weight", {rows, columns}, 0.0f, spread_of(columns)});
    if (bias) tensors.push_back({name + ".bias", {rows}, 0.0f, 0.02f});
  }
  void norm(const std::string& name, int64_t size) {
    tensors.push_back({name + ".weight", {size}, 1.0f, 0.05f});
  }

  std::vector<weights::SyntheticTensor> tensors;
};

}  // namespace

std::string shape_names() {
  std::string names;
  for (const Shape& shape : kShapes) {
    if (!names.empty()) names += ", ";
    names += shape.name;
  }
  return names;
}

Result<ModelConfig> shape_config(std::string_view name, int32_t layers) {
  const auto* shape = std::ranges::find(kShapes, name, &Shape::name);
  if (shape == std::end(kShapes)) {
    return invalid_argument(fmt::format("'{}' is not one of {}", name, shape_names()));
  }
  if (layers < 0 || layers > 1024) {
    return invalid_argument(fmt::format("a shape has 1 to 1024 layers, not {}", layers));
  }
  const std::string document = fmt::format(
      R"({{"model_type":"{}","num_hidden_layers":{},"hidden_size":{},"intermediate_size":{},)"
      R"("num_attention_heads":{},"num_key_value_heads":{},"head_dim":{},"vocab_size":{},)"
      R"("max_position_embeddings":{},"rope_theta":{},"rms_norm_eps":{},)"
      R"("tie_word_embeddings":{},"rope_scaling":{},"hidden_act":"silu","sliding_window":null}})",
      shape->model_type, layers > 0 ? layers : shape->layers, shape->hidden_size,
      shape->intermediate_size, shape->heads, shape->kv_heads, shape->head_dim, shape->vocab_size,
      shape->positions, shape->rope_theta, shape->norm_eps, shape->tied, shape->rope_scaling);
  return config_from_json(document, name);
}

std::vector<weights::SyntheticTensor> shape_tensors(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t query = int64_t{config.num_attention_heads} * config.head_dim;
  const int64_t kv = int64_t{config.num_key_value_heads} * config.head_dim;
  TensorList list;
  list.matrix("model.embed_tokens", config.vocab_size, hidden);
  for (int32_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    list.norm(layer + "input_layernorm", hidden);
    list.matrix(layer + "self_attn.q_proj", query, hidden, config.attention_bias);
    list.matrix(layer + "self_attn.k_proj", kv, hidden, config.attention_bias);
    list.matrix(layer + "self_attn.v_proj", kv, hidden, config.attention_bias);
    list.matrix(layer + "self_attn.o_proj", hidden, query, config.attention_output_bias);
    if (config.qk_norm) {
      list.norm(layer + "self_attn.q_norm", config.head_dim);
      list.norm(layer + "self_attn.k_norm", config.head_dim);
    }
    list.norm(layer + "post_attention_layernorm", hidden);
    list.matrix(layer + "mlp.gate_proj", config.intermediate_size, hidden, config.mlp_bias);
    list.matrix(layer + "mlp.up_proj", config.intermediate_size, hidden, config.mlp_bias);
    list.matrix(layer + "mlp.down_proj", hidden, config.intermediate_size, config.mlp_bias);
  }
  list.norm("model.norm", hidden);
  if (!config.tie_word_embeddings) list.matrix("lm_head", config.vocab_size, hidden);
  return std::move(list.tensors);
}

}  // namespace pelton::models
