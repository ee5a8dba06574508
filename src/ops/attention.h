// Attention over paged keys and values, as a fold: a partial state is (running maximum, running
// sum, weighted values) and two states merge associatively (FlashAttention, arXiv 2205.14135 and
// 2307.08691; Flash-Decoding). Scratch is linear in the number of rows and independent of context
// length.
//
// Invariance: keys are cut into tiles and chunks by a rule of the row's own context length; a chunk
// starts a fresh state and chunks merge in order, whichever thread computed them. So a row's bits
// are the same in prefill, decode, any chunking of the prompt and any batch.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "kernels/params/attention.h"
#include "ops/elementwise.h"
#include "ops/step_context.h"
#include "pelton/status.h"

namespace pelton::ops {

// Tensors here are activations (StepContext::activation_type).

// Stores the step's keys and values [T, kv_heads, head_dim] in their page slots; slots[t] =
// block * block_tokens + offset, distinct. On a device a negative slot stores nothing.
struct KvAppendArgs {
  Tensor keys = {};
  Tensor values = {};
  std::span<const int32_t> slots = {};
  kernels::KvLayerView cache = {};
};
Status kv_append(StepContext& context, const KvAppendArgs& args);

// All that stands between a layer's projection and attention, over its queries, keys and values
// side by side: norms of the query and key heads where the model has them, rotation, kv_append.
// Queries and keys are changed where they are.
struct PrepareArgs {
  Tensor qkv = {};  // [T, (heads + 2 kv_heads) * head_dim]
  int64_t heads = 0;
  const float* query_norm = nullptr;  // [head_dim], or null
  const float* key_norm = nullptr;
  float query_eps = 0.0f;
  float key_eps = 0.0f;
  const RopeAngles* angles = nullptr;  // null where positions enter otherwise
  RopePairing pairing = RopePairing::kHalves;
  std::span<const int32_t> slots = {};
  kernels::KvLayerView cache = {};
};
Status prepare_attention(StepContext& context, const PrepareArgs& args);

struct AttentionArgs {
  Tensor queries;  // [T, heads, head_dim]; heads is a multiple of cache.num_kv_heads
  kernels::KvLayerView cache = {};
  std::span<const kernels::SequenceSlice> sequences = {};  // cover every row once
  kernels::AttentionVariant variant = {};
  Tensor out;  // [T, heads * head_dim]
};
Status attention(StepContext& context, const AttentionArgs& args);

}  // namespace pelton::ops
