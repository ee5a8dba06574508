// Attention and page kernels of one ISA level.
//
// A page holds, for each KV head, `block_tokens` keys and (at `values`) as many values:
//   keys    groups of 16 tokens, each [head_dim][16]: a vector of one group's row is one dimension
//   of
//           8 or 16 keys, so scores need no horizontal sums
//   values  [block_tokens][head_dim]
//   int8    after each head's codes: [block_tokens] f32, one scale a token
// Keys are folded in tiles of 32 positions (two groups, which may lie in different blocks) that
// start at multiples of 32, tiles in chunks of a length given by `attention_chunk`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/params/attention.h"

namespace pelton::kernels {

inline constexpr int32_t kKeyGroup = 16;
inline constexpr int32_t kKeyTile = 32;
// Query rows (positions times heads) that one task may hold.
inline constexpr int32_t kMaxQueryRows = 96;

// One step of the fold: `num_positions` queries of `num_heads` heads that share a KV head, over all
// keys they see or, with `state` set, over one chunk of them.
struct AttentionTask {
  const float* queries = nullptr;  // of the first position: [heads][head_dim]
  int64_t query_stride = 0;        // elements between positions
  float* out = nullptr;            // as queries
  int64_t out_stride = 0;
  KvLayerView cache;
  const int32_t* blocks = nullptr;
  AttentionVariant variant;
  int32_t first_position = 0;
  int32_t num_positions = 0;
  int32_t first_head = 0;
  int32_t num_heads = 0;  // num_positions * num_heads <= kMaxQueryRows
  int32_t kv_head = 0;
  int32_t chunk_tokens = 0;  // attention_chunk of every position
  // Not null: num_positions is 1, only keys [chunk_begin, chunk_begin + chunk_tokens) are folded
  // and the states of the heads are written here, [num_heads][attention_state_floats].
  float* state = nullptr;
  int32_t chunk_begin = 0;
};

// Merges the chunk states of one position in order and writes its output rows.
struct AttentionMergeTask {
  float* states = nullptr;  // [num_chunks][num_heads][attention_state_floats]; used up
  int32_t num_chunks = 0;
  int32_t num_heads = 0;
  int32_t head_dim = 0;
  const float* sinks = nullptr;  // of the first head, or null
  float* out = nullptr;          // [num_heads][head_dim]
};

// One token's keys and values, all KV heads, into its slot.
struct KvAppendTask {
  const float* keys = nullptr;  // [kv_heads][head_dim]
  const float* values = nullptr;
  KvLayerView cache;
  int32_t slot = 0;
};

struct AttentionKernels {
  // `scratch`: attention_scratch_floats, 64-byte aligned.
  void (*attend)(const AttentionTask& task, float* scratch) = nullptr;
  void (*merge)(const AttentionMergeTask& task) = nullptr;
  void (*append)(const KvAppendTask& task) = nullptr;
};

// Chunk length of a row that sees `visible` keys: a power of two, so that at most 17 chunks hold
// them; at least 256.
int32_t attention_chunk(int32_t visible);
inline constexpr int32_t kMaxChunks = 18;
// A partial state: weighted values, padded to 16, then maximum and sum.
constexpr int64_t attention_state_floats(int64_t head_dim) {
  return (head_dim + 15) / 16 * 16 + 16;
}
// Scratch of one thread.
constexpr int64_t attention_scratch_floats(int64_t head_dim) {
  const int64_t padded = (head_dim + 15) / 16 * 16;
  const int64_t row = 3 * padded + kKeyTile + 16 + 8;  // query, two states' values, scores, sums
  return kMaxQueryRows * row + 2 * kKeyTile * padded;
}

}  // namespace pelton::kernels
