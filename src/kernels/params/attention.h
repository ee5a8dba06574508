// What attention kernels see of pages, sequences and variants. Shared by every backend.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace pelton::kernels {

// Storage of the keys and values of one page. Int8 pages carry one f32 scale for each (token, head)
// of K and of V.
enum class KvFormat : uint8_t { kF32, kF16, kBF16, kFp8, kInt8 };
const char* kv_format_name(KvFormat format);  // "f32", "f16", "bf16", "fp8", "int8"
// Bytes of one stored element.
[[gnu::always_inline]] constexpr int32_t kv_element_bytes(KvFormat format) {
  return format == KvFormat::kF32                                ? 4
         : format == KvFormat::kF16 || format == KvFormat::kBF16 ? 2
                                                                 : 1;
}
// Bytes of one token of one KV head, of its keys as of its values, scale included.
[[gnu::always_inline]] constexpr int64_t kv_head_token_bytes(KvFormat format, int64_t head_dim) {
  return head_dim * kv_element_bytes(format) + (format == KvFormat::kInt8 ? 4 : 0);
}

// One layer's pages. A block holds `block_tokens` tokens of every KV head; block b begins at
// keys + b * block_bytes and values + b * block_bytes. The layout inside a block is the attention
// kernels' own (kv/pages documents it); everyone else goes through append and copy.
struct KvLayerView {
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  size_t block_bytes = 0;  // distance between consecutive blocks, for keys as for values
  int32_t block_tokens = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  KvFormat format = KvFormat::kF16;
};

// The rows of one sequence inside a step: queries first_row .. first_row + num_rows - 1 are its
// positions context_len - num_rows .. context_len - 1, whose keys and values were appended before
// attention runs.
struct SequenceSlice {
  int32_t first_row = 0;
  int32_t num_rows = 0;
  int32_t context_len = 0;
  const int32_t* blocks =
      nullptr;  // block table: token t lies in blocks[t / block_tokens], slot t % block_tokens
};

// Attention variants; the defaults are plain causal attention.
struct AttentionVariant {
  float scale = 1.0f;  // multiplies q.k
  int32_t sliding_window =
      0;                  // > 0: a query sees only the last `sliding_window` keys, itself included
  float soft_cap = 0.0f;  // > 0: scores become cap * tanh(score / cap)
  const float* sinks = nullptr;  // [num_heads] extra logit in each head's softmax denominator
  const float* alibi_slopes =
      nullptr;  // [num_heads] score += slope * (key position - query position)
};

}  // namespace pelton::kernels
