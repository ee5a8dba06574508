// The baseline of the attention benchmark: causal attention as three passes over a score matrix.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"

namespace pelton::ops {

// Keys are given in groups of 16 tokens, [kv_heads][tokens / 16][head_dim][16] f32, and values as
// [kv_heads][tokens][head_dim] f32: widened and laid out for the products, outside the timing.
struct UnfusedAttention {
  const float* queries = nullptr;  // [tokens][heads][head_dim]
  const float* keys = nullptr;
  const float* values = nullptr;
  float* scores = nullptr;  // [heads][tokens][tokens]
  float* out = nullptr;     // [tokens][heads][head_dim]
  int64_t tokens = 0;       // a multiple of 96
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // a multiple of 16
  float scale = 1.0f;
};
// Blocked, on all threads, with AVX2 and the vector primitives of the fused kernel; skips the
// masked half in all three passes.
void unfused_attention_avx2(const UnfusedAttention& args, ThreadPool& pool);

}  // namespace pelton::ops
