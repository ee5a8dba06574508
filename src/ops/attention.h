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
#include "ops/step_context.h"
#include "pelton/status.h"

namespace pelton::ops {

// Stores the step's keys and values [T, kv_heads, head_dim] f32 in their page slots; slots[t] =
// block * block_tokens + offset, distinct.
struct KvAppendArgs {
  Tensor keys = {};
  Tensor values = {};
  std::span<const int32_t> slots = {};
  kernels::KvLayerView cache = {};
};
Status kv_append(StepContext& context, const KvAppendArgs& args);

struct AttentionArgs {
  Tensor queries;  // [T, heads, head_dim] f32; heads is a multiple of cache.num_kv_heads
  kernels::KvLayerView cache = {};
  std::span<const kernels::SequenceSlice> sequences = {};  // cover every row once
  kernels::AttentionVariant variant = {};
  Tensor out;  // [T, heads * head_dim] f32
};
Status attention(StepContext& context, const AttentionArgs& args);

}  // namespace pelton::ops
