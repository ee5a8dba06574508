// How paged_decode cuts its work: sequences into chunks, the flat list of chunks over the blocks.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/params/attention.h"

namespace pelton::kernels::cuda {

inline constexpr int kDecodeMaxBatch = 1024;
inline constexpr int kDecodeHeads = 8;  // query heads of one item: columns of the instruction

struct PagedDecodeParams {
  CUtensorMap key_map;  // [blocks][kv_heads * block_tokens][head_dim]
  CUtensorMap value_map;
  const __nv_bfloat16* q;
  int64_t q_stride;
  const int32_t* block_table;
  int64_t table_stride;
  const int32_t* context_lens;
  const SequenceSlice* sequences;  // or null
  int64_t table_shift;
  const float* sinks;
  __nv_bfloat16* out;
  int64_t out_stride;
  unsigned* counters;  // [batch][kv_heads][head_blocks], zero between launches
  float* partials;     // [batch][max_chunks][heads][head_dim + 2]: values, base, sum
  float score_scale;   // scale * key_scale
  float soft_cap;
  float value_scale;
  int32_t batch;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_blocks;  // of eight query heads
  int32_t block_tokens;
  int32_t window;
  int32_t max_chunks;
  bool even_grid;  // the same number of blocks on every SM

  __device__ __forceinline__ int length_of(int sequence) const {
    return sequences != nullptr ? sequences[sequence].context_len : context_lens[sequence];
  }
  __device__ __forceinline__ const int32_t* blocks_of(int sequence) const {
    if (sequences == nullptr) return block_table + sequence * table_stride;
    return reinterpret_cast<const int32_t*>(
        reinterpret_cast<const char*>(sequences[sequence].blocks) + table_shift);
  }
};

__device__ __forceinline__ int decode_chunk_keys(int visible) {
  const int ceiling = visible <= 1 ? 1 : 1 << (32 - __clz(visible - 1));
  return ceiling / 32 > 256 ? ceiling / 32 : 256;
}

// The chunks of all sequences, in shared memory.
struct ChunkTable {
  int32_t* begin;    // [batch + 1] chunks of the sequences before
  int32_t* lengths;  // [batch]
};

// One sequence and one KV head with up to eight of its query heads. The flat list of items is
// [sequence][KV head, head block][chunk].
struct DecodeHead {
  int sequence;
  int chunks;
  int kv_head;
  int first_head;
  int heads;
  int counter;
  int length;  // of the context
  int lowest;  // first visible key
  int chunk_keys;
  int64_t first_item;  // flat index of chunk 0

  __device__ int begin(int chunk) const { return lowest / 16 * 16 + chunk * chunk_keys; }
  __device__ int end(int chunk) const { return min(begin(chunk) + chunk_keys, length); }
};

__device__ __forceinline__ DecodeHead decode_head(const PagedDecodeParams& p,
                                                  const ChunkTable& table, int64_t item) {
  const int parts = p.kv_heads * p.head_blocks;
  int low = 0;
  int high = p.batch;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (static_cast<int64_t>(table.begin[middle]) * parts <= item) {
      low = middle;
    } else {
      high = middle;
    }
  }
  DecodeHead h;
  h.sequence = low;
  h.chunks = table.begin[low + 1] - table.begin[low];
  const int64_t base = static_cast<int64_t>(table.begin[low]) * parts;
  const int part = static_cast<int>(item - base) / h.chunks;
  h.first_item = base + static_cast<int64_t>(part) * h.chunks;
  h.counter = low * parts + part;
  h.kv_head = part / p.head_blocks;
  const int group = p.heads / p.kv_heads;
  const int head_block = part % p.head_blocks;
  h.first_head = h.kv_head * group + head_block * kDecodeHeads;
  h.heads = min(kDecodeHeads, group - head_block * kDecodeHeads);
  h.length = table.lengths[low];
  const int visible = p.window > 0 ? min(p.window, h.length) : h.length;
  h.lowest = h.length - visible;
  h.chunk_keys = decode_chunk_keys(visible);
  return h;
}

// At least one, so that a sequence without keys gets its zeros.
__device__ __forceinline__ int decode_chunks(const PagedDecodeParams& p, int length) {
  const int visible = p.window > 0 ? min(p.window, length) : length;
  const int keys = decode_chunk_keys(visible);
  const int span = length - (length - visible) / 16 * 16;
  return max(1, (span + keys - 1) / keys);
}

// Run by one warp.
__device__ __forceinline__ void count_chunks(const PagedDecodeParams& p, const ChunkTable& table,
                                             int lane) {
  int before = 0;
  for (int base = 0; base < p.batch; base += 32) {
    const int sequence = base + lane;
    const int length = sequence < p.batch ? p.length_of(sequence) : 0;
    int sum = sequence < p.batch ? decode_chunks(p, length) : 0;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int left = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += left;
    }
    if (sequence < p.batch) {
      table.begin[sequence + 1] = before + sum;
      table.lengths[sequence] = length;
    }
    before += __shfl_sync(~0u, sum, 31);
  }
  if (lane == 0) table.begin[0] = 0;
}

// An even cut of the flat list: the first item of a block, and the block that an item belongs to.
__device__ __forceinline__ int64_t first_item_of(int64_t items, int64_t block, int64_t blocks) {
  return items * block / blocks;
}
__device__ __forceinline__ int64_t block_of(int64_t items, int64_t item, int64_t blocks) {
  return ((item + 1) * blocks - 1) / items;
}

// Of the `grid` resident blocks, how many take items. When few items fall to each, fewer blocks an
// SM can share them more evenly: the busiest SM counts. Blocks are dealt to the SMs in turn.
__device__ __forceinline__ int busy_blocks(int64_t items, int grid, int per_sm) {
  const int64_t all = per_sm * ((items + grid - 1) / grid);
  int64_t least = all;
  int best = per_sm;
  for (int k = per_sm - 1; k > 0; --k) {
    const int64_t blocks = grid / per_sm * k;
    const int64_t most = k * ((items + blocks - 1) / blocks);
    if (most < least && most * 8 < all * 7) {
      least = most;
      best = k;
    }
  }
  return grid / per_sm * best;
}

// What a block does, in shared memory: its even share of the flat list as three stretches, in turn.
//
// Where a share has at least as many items as a head has chunks, the head lies in two blocks at
// most. The one with its first chunks takes them before all else and hands on their fold, from
// which the other one proceeds after all else. All other heads that lie in several blocks are
// folded by the block that brings the last of their chunks.
struct BlockShare {
  static constexpr int kStretches = 3;
  int64_t begin[kStretches];
  int64_t end[kStretches];
  int64_t items;  // of all blocks
  int blocks;     // that take any

  __device__ __forceinline__ bool is_handed(const DecodeHead& h) const {
    return h.chunks <= items / blocks;
  }
  // From an item's end on to the next stretch that has any.
  __device__ __forceinline__ bool has_more(int& stretch, int64_t& item) const {
    while (item == end[stretch]) {
      if (++stretch == kStretches) return false;
      item = begin[stretch];
    }
    return true;
  }
};

__device__ __forceinline__ void share_out(const PagedDecodeParams& p, const ChunkTable& table,
                                          int per_sm, BlockShare& s) {
  const int grid = static_cast<int>(gridDim.x);
  s.items = static_cast<int64_t>(table.begin[p.batch]) * p.kv_heads * p.head_blocks;
  s.blocks = p.even_grid ? busy_blocks(s.items, grid, per_sm) : grid;
  const int block = min(static_cast<int>(blockIdx.x), s.blocks);
  const int64_t first = first_item_of(s.items, block, s.blocks);
  const int64_t last = first_item_of(s.items, min(block + 1, s.blocks), s.blocks);
  int64_t early = last;  // where the head begins that the next block ends
  int64_t late = first;  // where the head ends that the block ahead began
  if (first < last && last < s.items) {
    const DecodeHead h = decode_head(p, table, last);
    if (h.first_item < last && s.is_handed(h)) early = h.first_item;
  }
  if (first < last) {
    const DecodeHead h = decode_head(p, table, first);
    if (h.first_item < first && s.is_handed(h)) late = h.first_item + h.chunks;
  }
  s.begin[0] = early;
  s.end[0] = last;
  s.begin[1] = late;
  s.end[1] = early;
  s.begin[2] = first;
  s.end[2] = late;
}

}  // namespace pelton::kernels::cuda
