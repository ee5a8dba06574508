// Self-attention over paged keys and values: one fused projection, optional per-head norms, rotary
// embedding, append, attend, output projection.
#pragma once

#include <optional>

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/step_batch.h"
#include "ops/attention.h"

namespace pelton::nn {

class Attention {
 public:
  struct Shape {
    int64_t num_heads = 0;
    int64_t num_kv_heads = 0;
    int64_t head_dim = 0;
  };

  Attention() = default;
  // `qkv` gives query, key and value side by side.
  Attention(Shape shape, Linear qkv, Linear output, kernels::AttentionVariant variant)
      : shape_(shape), qkv_(std::move(qkv)), output_(std::move(output)), variant_(variant) {}

  void set_head_norms(RmsNorm query, RmsNorm key) {
    query_norm_ = query;
    key_norm_ = key;
  }

  // residual [T, hidden] += output(attend(x)). `angles` is null where positions enter otherwise.
  void add_to(ops::StepContext& context, const Input& x, const StepBatch& batch,
              const kernels::KvLayerView& cache, const ops::RopeAngles* angles,
              ops::RopePairing pairing, const Tensor& residual) const;
  // The same without the residual stream: [T, hidden] in the step's arena.
  Tensor forward(ops::StepContext& context, const Input& x, const StepBatch& batch,
                 const kernels::KvLayerView& cache, const ops::RopeAngles* angles,
                 ops::RopePairing pairing) const;

 private:
  Tensor attend(ops::StepContext& context, const Input& x, const StepBatch& batch,
                const kernels::KvLayerView& cache, const ops::RopeAngles* angles,
                ops::RopePairing pairing) const;

  Shape shape_;
  Linear qkv_;
  Linear output_;
  std::optional<RmsNorm> query_norm_;
  std::optional<RmsNorm> key_norm_;
  kernels::AttentionVariant variant_;
};

}  // namespace pelton::nn
