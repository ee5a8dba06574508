// Causal attention of sequences that bring many query tokens (prefill, chunks of it, mixed steps),
// over paged keys and values.
//
// Row i of a sequence, at position p = context_len - num_rows + i, head h:
//   out[i][h] = sum_t softmax_t(scale * q[i][h] . K[t][h / group]) V[t][h / group], t <= p and,
//   with
// a window, t > p - window. Pages lie as paged_decode.h says.
//
// Parallel plan: the query heads of a KV head are packed with consecutive tokens into tiles of 128
// rows, so a KV head's pages are read once for all of them. Blocks stay resident and draw (tile, KV
// head) items from a counter, within a sequence and KV head the longest first. In a block a warp or
// two drive the copy engine through rings of key and of value tiles; two groups of four warps take
// 64 rows each, exchanging turns so that one's softmax runs beside the other's products, and within
// a group the next tile's scores are under way while the present tile's softmax is computed.
//
// FP8 pages go through shared memory twice: as codes, and as the FP16 that further warps write of
// them ahead of the products.
//
// Numerics: scores and sums in FP32 from BF16 operands, softmax weights rounded to BF16; FP16 in
// their stead for FP8 pages, as paged_decode.h says. Key tiles
// lie on a fixed grid from position 0 and are folded downwards from the row's own; tiles a row does
// not see leave its state untouched. So a row's bits depend on its position and context alone: not
// on how a prompt was cut into chunks nor on the batch. They are not those of paged_decode, whose
// warps fold 16 keys apart: its order would cost the matrix unit its shape here.
//
// Programmatic launch: nothing is read before the kernel ahead has ended.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/paged_decode.h"
#include "kernels/params/attention.h"

namespace pelton::kernels::cuda {

struct PagedPrefillArgs {
  const void* q = nullptr;  // [rows][heads][head_dim] bf16, 16-byte aligned
  int64_t q_stride = 0;     // elements between rows, a multiple of 8
  int64_t rows = 0;         // of all sequences
  const void* keys = nullptr;
  const void* values = nullptr;
  int64_t block_stride = 0;  // bytes between blocks, a multiple of 16
  int32_t num_blocks = 0;
  int32_t block_tokens = 0;  // a multiple of 16
  PageType page_type = PageType::kBF16;
  const SequenceSlice* sequences = nullptr;  // [num_sequences] on the device
  int32_t num_sequences = 0;                 // at most 1,024
  int64_t table_shift = 0;  // bytes from SequenceSlice::blocks to the device's copy
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;  // 64, 128, 256
  float scale = 1.0f;
  float key_scale = 1.0f;  // FP8 pages: key = code * key_scale
  float value_scale = 1.0f;
  float soft_cap = 0.0f;
  int32_t window = 0;
  const float* sinks = nullptr;  // [heads], optional
  void* out = nullptr;           // [rows][heads * head_dim] bf16, 16-byte aligned
  int64_t out_stride = 0;        // elements between rows, a multiple of 8
  void* workspace = nullptr;     // kPagedPrefillWorkspace bytes, 16-byte aligned; any contents
  bool programmatic = true;
};
inline constexpr size_t kPagedPrefillWorkspace = 16;

bool supports(const PagedPrefillArgs& args);
cudaError_t launch_paged_prefill(const PagedPrefillArgs& args, cudaStream_t stream);

}  // namespace pelton::kernels::cuda
