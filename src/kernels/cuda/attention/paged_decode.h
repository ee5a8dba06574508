// Attention of decode steps: one query token a sequence over its paged keys and values.
//
// out[b][h] = sum_t softmax_t(scale * q[b][h] . K[t][h / group]) V[t][h / group], t over the last
// `window` of context_lens[b] tokens (all if window is 0), the query's own token included.
//
// Pages: block i of a layer begins at keys + i * block_stride (values alike) and holds
// [kv_heads][block_tokens][head_dim] elements; token t of sequence b lies in block
// block_table[b][t / block_tokens], slot t % block_tokens. Slots past the context may hold
// anything.
//
// Parallel plan: keys are cut into chunks by a rule of the sequence's own visible length
// (`decode_chunk`); all query heads of a KV head (eight at a time) are packed into the columns of
// the matrix instruction. The flat list of (sequence, KV head, chunk) is cut evenly over a fixed
// grid of resident blocks; in a block four warps take 16 keys each of a tile of 64, which the copy
// engine brings through a ring. Keys and values are read once. Chunk states are folded in order: in
// registers while one block holds them, and on from there by a second block that ends what this one
// began; those of a head in more blocks by the block that finishes last. The arithmetic is the
// same: bits do not depend on the batch. Launch and grid do not depend on the lengths: a
// captured graph serves any contexts up to max_context.
//
// Numerics: scores and sums in FP32 from BF16 operands, softmax weights rounded to BF16. FP8 pages
// are E4M3 without NaN: key = code * key_scale, value = code * value_scale. Their codes become
// FP16, which holds them exactly and which one instruction makes of two; queries become FP16 times
// a power of two of their row, which loses no bit that counts; weights are rounded to FP16.
//
// Programmatic launch: block tables, lengths and all pages but the tile of the newest token are
// read before the kernel directly ahead has ended: it may write position context_len - 1 of each
// sequence and no other of these.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/params/attention.h"

namespace pelton::kernels::cuda {

enum class PageType : uint8_t { kBF16, kFp8 };

struct PagedDecodeArgs {
  const void* q = nullptr;  // [batch][heads][head_dim] bf16
  int64_t q_stride = 0;     // elements between sequences, a multiple of 8
  const void* keys = nullptr;
  const void* values = nullptr;
  int64_t block_stride = 0;  // bytes between blocks, a multiple of 16
  int32_t num_blocks = 0;
  int32_t block_tokens = 0;  // a multiple of 16
  PageType page_type = PageType::kBF16;
  const int32_t* block_table = nullptr;   // [batch][table_stride]
  int64_t table_stride = 0;               // entries
  const int32_t* context_lens = nullptr;  // [batch] in [0, max_context]; 0 gives zeros
  // Instead of the last three: [batch] slices, whose block tables lie table_shift bytes from where
  // they say.
  const SequenceSlice* sequences = nullptr;
  int64_t table_shift = 0;
  int32_t batch = 0;        // at most 1,024
  int32_t max_context = 0;  // bounds workspace and grid, nothing else
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;  // 64, 128 or 256
  float scale = 1.0f;
  float key_scale = 1.0f;
  float value_scale = 1.0f;
  float soft_cap = 0.0f;         // > 0: scores become cap * tanh(score / cap)
  int32_t window = 0;            // > 0: sliding window
  const float* sinks = nullptr;  // [heads] extra logit of each head's denominator, optional
  void* out = nullptr;           // [batch][heads * head_dim] bf16
  int64_t out_stride = 0;        // elements between sequences
  void* workspace = nullptr;     // 16-byte aligned; all zero before its first use, reusable by any
                                 // launch that follows in the same stream
  size_t workspace_bytes = 0;    // at least paged_decode_workspace
  // Instead of the workspace's beginning: paged_decode_counters bytes, zero likewise; the workspace
  // may then hold anything.
  void* counters = nullptr;
  bool programmatic = true;
};

// Keys a chunk for a row that sees `visible` keys. Part of the numerics.
int32_t decode_chunk(int32_t visible);
// Counters first, so one zeroed workspace of the largest shape serves all smaller ones.
size_t paged_decode_workspace(const PagedDecodeArgs& args);
size_t paged_decode_counters(const PagedDecodeArgs& args);
bool supports(const PagedDecodeArgs& args);
cudaError_t launch_paged_decode(const PagedDecodeArgs& args, cudaStream_t stream);

}  // namespace pelton::kernels::cuda
