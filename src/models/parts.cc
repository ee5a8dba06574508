#include "models/parts.h"

#include <cmath>

#include "nn/must.h"

namespace pelton::models {

using nn::must;

TokenHead::TokenHead(const ModelConfig& config, const std::string& embedding_name,
                     nn::WeightLoader& loader)
    : embedding_scale_(config.embedding_scale), soft_cap_(config.final_logit_softcapping) {
  // Files of tied models may carry the head once more: the flag decides, as in the reference.
  const bool own_head = loader.has("lm_head.weight") && !config.tie_word_embeddings;
  table_ = loader.embedding(embedding_name + ".weight", config.vocab_size, config.hidden_size,
                            !own_head);
  if (own_head) {
    // Not one of the matrices that a load may quantize.
    head_ = nn::Linear(loader.matrix("lm_head.weight", config.vocab_size, config.hidden_size));
  } else {
    head_ = nn::Linear(table_);
    if (!config.tie_word_embeddings) {
      loader.fail(data_loss("tensor 'lm_head.weight' is missing and tie_word_embeddings is false"));
    }
  }
}

Tensor TokenHead::embed(ops::StepContext& context, const nn::StepBatch& batch) const {
  const Tensor out = context.arena.rows(DType::kF32, batch.num_tokens(), table_.columns);
  must(ops::embedding(
      context, {.table = &table_, .ids = batch.token_ids, .scale = embedding_scale_, .out = out}));
  return out;
}

Tensor TokenHead::logits(ops::StepContext& context, const Tensor& normed) const {
  context.trace("final_norm", normed);
  const Tensor out = head_.logits(context, normed);
  if (soft_cap_ > 0.0f) must(ops::soft_cap(context, out, soft_cap_));
  context.trace("logits", out);
  return out;
}

Rope::Rope(const RopeConfig& config, int32_t context_len, int32_t max_position_embeddings,
           nn::WeightLoader& loader)
    : pairing_(config.pairing) {
  const RopeFrequencies frequencies =
      rope_frequencies(config, context_len, max_position_embeddings);
  inv_freq_ = {loader.constants(frequencies.inv_freq), frequencies.inv_freq.size()};
  magnitude_ = frequencies.magnitude;
}

ops::RopeAngles Rope::angles(ops::StepContext& context, const nn::StepBatch& batch) const {
  return must(ops::rope_angles(context, batch.positions, inv_freq_, magnitude_));
}

Tensor take_logit_rows(ops::StepContext& context, const nn::StepBatch& batch, const Tensor& x) {
  const Tensor out = context.arena.rows(DType::kF32, static_cast<int64_t>(batch.logit_rows.size()),
                                        x.row_elements());
  must(ops::gather_rows(context, x, batch.logit_rows, out));
  return out;
}

kernels::AttentionVariant attention_variant(const ModelConfig& config, int32_t layer) {
  kernels::AttentionVariant variant;
  variant.scale = config.attention_scale > 0.0f
                      ? config.attention_scale
                      : 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  if (!config.sliding_windows.empty())
    variant.sliding_window = config.sliding_windows[static_cast<size_t>(layer)];
  variant.soft_cap = config.attn_logit_softcapping;
  return variant;
}

}  // namespace pelton::models
