#include "nn/attention.h"

#include "nn/must.h"

namespace pelton::nn {

Tensor Attention::attend(ops::StepContext& context, const Input& x, const StepBatch& batch,
                         const kernels::KvLayerView& cache, const ops::RopeAngles* angles,
                         ops::RopePairing pairing) const {
  const int64_t query_size = shape_.num_heads * shape_.head_dim;
  const int64_t kv_size = shape_.num_kv_heads * shape_.head_dim;
  const Tensor qkv = qkv_.forward(context, x);
  const Tensor query = qkv.columns(0, query_size).heads(shape_.num_heads, shape_.head_dim);
  const Tensor key = qkv.columns(query_size, kv_size).heads(shape_.num_kv_heads, shape_.head_dim);
  const Tensor value =
      qkv.columns(query_size + kv_size, kv_size).heads(shape_.num_kv_heads, shape_.head_dim);
  must(ops::prepare_attention(context, {.qkv = qkv,
                                        .heads = shape_.num_heads,
                                        .query_norm = query_norm_ ? query_norm_->weight() : nullptr,
                                        .key_norm = key_norm_ ? key_norm_->weight() : nullptr,
                                        .query_eps = query_norm_ ? query_norm_->eps() : 0.0f,
                                        .key_eps = key_norm_ ? key_norm_->eps() : 0.0f,
                                        .angles = angles,
                                        .pairing = pairing,
                                        .slots = batch.slots,
                                        .cache = cache}));
  context.trace("attn.query", query);
  context.trace("attn.key", key);
  context.trace("attn.value", value);
  const Tensor out = context.activation(x.rows.num_rows(), query_size);
  must(ops::attention(context, {.queries = query,
                                .cache = cache,
                                .sequences = batch.sequences,
                                .variant = variant_,
                                .out = out}));
  context.trace("attn.heads", out);
  return out;
}

void Attention::add_to(ops::StepContext& context, const Input& x, const StepBatch& batch,
                       const kernels::KvLayerView& cache, const ops::RopeAngles* angles,
                       ops::RopePairing pairing, const Tensor& residual) const {
  const memory::StepArena::Scope scope(context.arena);
  output_.add_to(context, attend(context, x, batch, cache, angles, pairing), residual);
}

Tensor Attention::forward(ops::StepContext& context, const Input& x, const StepBatch& batch,
                          const kernels::KvLayerView& cache, const ops::RopeAngles* angles,
                          ops::RopePairing pairing) const {
  const Tensor out = context.activation(x.rows.num_rows(), output_.out_features());
  const memory::StepArena::Scope scope(context.arena);
  const Tensor heads = attend(context, x, batch, cache, angles, pairing);
  output_.forward_into(context, heads, out);
  return out;
}

}  // namespace pelton::nn
