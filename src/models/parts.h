// Pieces that several architecture files share: embedding and head with their tie, rotary angles of
// a step.
#pragma once

#include <span>
#include <string>

#include "models/config.h"
#include "nn/linear.h"
#include "nn/step_batch.h"
#include "ops/elementwise.h"

namespace pelton::models {

// Token embedding and output head; one matrix when tied, or when the file has no head of its own.
class TokenHead {
 public:
  TokenHead(const ModelConfig& config, const std::string& embedding_name, nn::WeightLoader& loader);

  // [T, hidden_size].
  Tensor embed(ops::StepContext& context, const nn::StepBatch& batch) const;
  // Logits of the normed rows [rows, vocab_size], soft-capped where the model says so.
  Tensor logits(ops::StepContext& context, const Tensor& normed) const;

 private:
  kernels::WeightMatrix table_;
  nn::Linear head_;
  float embedding_scale_ = 1.0f;
  float soft_cap_ = 0.0f;
};

// Rotary frequencies of one kind of layer.
class Rope {
 public:
  Rope(const RopeConfig& config, int32_t context_len, int32_t max_position_embeddings,
       nn::WeightLoader& loader);

  ops::RopeAngles angles(ops::StepContext& context, const nn::StepBatch& batch) const;
  ops::RopePairing pairing() const { return pairing_; }

 private:
  std::span<const float> inv_freq_;
  float magnitude_ = 1.0f;
  ops::RopePairing pairing_;
};

// Rows of `x` whose logits are wanted.
Tensor take_logit_rows(ops::StepContext& context, const nn::StepBatch& batch, const Tensor& x);

// Attention variant of layer `layer`: scale, window, soft cap.
kernels::AttentionVariant attention_variant(const ModelConfig& config, int32_t layer);

}  // namespace pelton::models
