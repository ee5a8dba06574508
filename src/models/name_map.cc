#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "models/model.h"

namespace pelton::models {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

// Outside the layers: whole names up to ".weight" / ".bias".
constexpr std::array<Pair, 6> kGlobal = {{
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {"transformer.wte", "token_embd"},
    {"transformer.wpe", "position_embd"},
    {"transformer.ln_f", "output_norm"},
}};

// Inside a layer, after its index.
constexpr std::array<Pair, 20> kLayer = {{
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"ln_1", "attn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"ln_2", "ffn_norm"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
}};

// Where one architecture's name differs from the others'.
struct Exception {
  std::string_view model_type;
  std::string_view part;
  std::string_view gguf;
};
constexpr std::array<Exception, 2> kExceptions = {{
    {"gemma3_text", "post_attention_layernorm", "post_attention_norm"},
    {"phi3", "mlp.gate_up_proj", "ffn_up"},
}};

template <size_t N>
std::string_view lookup(const std::array<Pair, N>& table, std::string_view name) {
  for (const Pair& pair : table) {
    if (pair.first == name) return pair.second;
  }
  return {};
}

}  // namespace

std::string gguf_tensor_name(std::string_view model_type, std::string_view name) {
  const size_t dot = name.rfind('.');
  const std::string_view stem = name.substr(0, dot);
  const std::string suffix(dot == std::string_view::npos ? std::string_view{} : name.substr(dot));
  if (const std::string_view global = lookup(kGlobal, stem); !global.empty())
    return std::string(global) + suffix;
  for (const std::string_view prefix :
       {std::string_view("model.layers."), std::string_view("transformer.h.")}) {
    if (!stem.starts_with(prefix)) continue;
    const std::string_view rest = stem.substr(prefix.size());
    const size_t after_index = rest.find('.');
    if (after_index == std::string_view::npos) break;
    const std::string_view hugging_face_part = rest.substr(after_index + 1);
    std::string_view part = lookup(kLayer, hugging_face_part);
    for (const Exception& e : kExceptions) {
      if (e.model_type == model_type && e.part == hugging_face_part) part = e.gguf;
    }
    if (part.empty()) break;
    return "blk." + std::string(rest.substr(0, after_index)) + "." + std::string(part) + suffix;
  }
  return std::string(name);
}

}  // namespace pelton::models
