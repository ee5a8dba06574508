// How paged_prefill cuts its work into tiles of rows, and what each sees of the keys.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/params/attention.h"

namespace pelton::kernels::cuda {

inline constexpr int kPrefillRows = 128;
inline constexpr int kPrefillMaxSequences = 1024;

struct PagedPrefillParams {
  CUtensorMap q_map;    // [rows][heads][head_dim] in boxes of tile_tokens x group
  CUtensorMap key_map;  // BF16 pages in boxes of box_keys rows
  CUtensorMap value_map;
  const std::byte* keys;  // FP8 pages, brought without a map
  const std::byte* values;
  int64_t block_stride;
  const SequenceSlice* sequences;
  int64_t table_shift;
  const float* sinks;
  __nv_bfloat16* out;
  int64_t out_stride;
  unsigned* counter;  // of drawn items, zero at first
  float score_scale;  // scale * key_scale
  float soft_cap;
  float value_scale;
  int32_t num_sequences;
  int32_t kv_heads;
  int32_t group;        // query heads of a KV head
  int32_t tile_tokens;  // 128 / group
  int32_t block_tokens;
  int32_t box_keys;  // divides block_tokens and what the copy engine brings at once
  int32_t window;
};

// One tile of rows with one KV head.
struct PrefillItem {
  int sequence;  // < 0: there is no more work
  int kv_head;
  int first_row;  // of the step's rows
  int tokens;     // of the tile
  int first_position;
  int context;

  __device__ int last_position() const { return first_position + tokens - 1; }
  template <int keys>
  __device__ int last_tile() const {
    return last_position() / keys;
  }
  template <int keys>
  __device__ int first_tile(int window) const {
    return window > 0 ? max(0, first_position - window + 1) / keys : 0;
  }
};

// Tiles of the sequences before each, in shared memory. Run by one warp.
__device__ __forceinline__ void count_row_tiles(const PagedPrefillParams& p, int32_t* begin,
                                                int lane) {
  int before = 0;
  for (int base = 0; base < p.num_sequences; base += 32) {
    const int sequence = base + lane;
    const int rows = sequence < p.num_sequences ? p.sequences[sequence].num_rows : 0;
    int sum = (rows + p.tile_tokens - 1) / p.tile_tokens;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int left = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += left;
    }
    if (sequence < p.num_sequences) begin[sequence + 1] = before + sum;
    before += __shfl_sync(~0u, sum, 31);
  }
  if (lane == 0) begin[0] = 0;
}

// The flat order is [sequence][KV head][tile, last first].
__device__ __forceinline__ PrefillItem prefill_item(const PagedPrefillParams& p,
                                                    const int32_t* begin, int64_t item) {
  PrefillItem i = {};
  if (item >= static_cast<int64_t>(begin[p.num_sequences]) * p.kv_heads) {
    i.sequence = -1;
    return i;
  }
  int low = 0;
  int high = p.num_sequences;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (static_cast<int64_t>(begin[middle]) * p.kv_heads <= item) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int tiles = begin[low + 1] - begin[low];
  const int part = static_cast<int>(item - static_cast<int64_t>(begin[low]) * p.kv_heads);
  const int tile = tiles - 1 - part % tiles;
  const SequenceSlice slice = p.sequences[low];
  i.sequence = low;
  i.kv_head = part / tiles;
  i.first_row = slice.first_row + tile * p.tile_tokens;
  i.tokens = min(p.tile_tokens, slice.num_rows - tile * p.tile_tokens);
  i.first_position = slice.context_len - slice.num_rows + tile * p.tile_tokens;
  i.context = slice.context_len;
  return i;
}

__device__ __forceinline__ const int32_t* block_table(const PagedPrefillParams& p, int sequence) {
  return reinterpret_cast<const int32_t*>(
      reinterpret_cast<const char*>(p.sequences[sequence].blocks) + p.table_shift);
}

}  // namespace pelton::kernels::cuda
