#include <algorithm>
#include <bit>

#include "kernels/cuda/attention/paged_decode.h"
#include "kernels/cuda/attention/paged_decode_kernel.cuh"
#include "kernels/cuda/common/tile_launch.h"

namespace pelton::kernels::cuda {

namespace {

constexpr int kMultiprocessors = 132;  // of an H200; sizes the grid only

// The most chunks that any visible length up to `context` is cut into; a window may begin inside a
// tile of 16, which adds up to 15 keys.
int32_t most_chunks(int32_t context) { return std::clamp((context + 15 + 255) / 256, 1, 33); }

int32_t head_blocks(const PagedDecodeArgs& a) {
  return (a.heads / a.kv_heads + kDecodeHeads - 1) / kDecodeHeads;
}

}  // namespace

size_t paged_decode_counters(const PagedDecodeArgs& a) {
  const size_t counters = static_cast<size_t>(kDecodeMaxBatch) * static_cast<size_t>(a.kv_heads) *
                          static_cast<size_t>(head_blocks(a));
  return (counters * 4 + 255) / 256 * 256;
}

namespace {

template <PageType type, int head_dim>
cudaError_t launch_shape(const PagedDecodeArgs& a, cudaStream_t stream) {
  using S = DecodeShape<type, head_dim>;
  PagedDecodeParams p = {};
  TileMap tile;
  tile.element_bytes = S::kElementBytes;
  tile.dimensions = 3;
  tile.size[0] = static_cast<uint64_t>(head_dim * S::kRowTokens);
  tile.size[1] =
      static_cast<uint64_t>(a.kv_heads) * static_cast<uint64_t>(a.block_tokens / S::kRowTokens);
  tile.size[2] = static_cast<uint64_t>(a.num_blocks);
  tile.stride_bytes[1] = static_cast<uint64_t>(head_dim * S::kRowTokens * S::kElementBytes);
  tile.stride_bytes[2] = static_cast<uint64_t>(a.block_stride);
  tile.box_rows = S::kBoxRows;
  tile.base = a.keys;
  if (cudaError_t e = encode_tile_map(tile, &p.key_map); e != cudaSuccess) return e;
  tile.base = a.values;
  if (cudaError_t e = encode_tile_map(tile, &p.value_map); e != cudaSuccess) return e;
  p.q = static_cast<const __nv_bfloat16*>(a.q);
  p.q_stride = a.q_stride;
  p.block_table = a.block_table;
  p.table_stride = a.table_stride;
  p.context_lens = a.context_lens;
  p.sequences = a.sequences;
  p.table_shift = a.table_shift;
  p.sinks = a.sinks;
  p.out = static_cast<__nv_bfloat16*>(a.out);
  p.out_stride = a.out_stride;
  const bool is_apart = a.counters != nullptr;
  p.counters = static_cast<unsigned*>(is_apart ? a.counters : a.workspace);
  p.partials = reinterpret_cast<float*>(static_cast<std::byte*>(a.workspace) +
                                        (is_apart ? 0 : paged_decode_counters(a)));
  p.score_scale = a.scale * a.key_scale;
  p.soft_cap = a.soft_cap;
  p.value_scale = a.value_scale;
  p.batch = a.batch;
  p.heads = a.heads;
  p.kv_heads = a.kv_heads;
  p.head_blocks = head_blocks(a);
  p.block_tokens = a.block_tokens;
  p.window = a.window;
  p.max_chunks = most_chunks(a.max_context);
  const int64_t items = static_cast<int64_t>(a.batch) * p.max_chunks * a.kv_heads * p.head_blocks;
  constexpr int kResident = kMultiprocessors * S::kBlocksPerSm;
  p.even_grid = items >= kResident;
  LaunchShape shape;
  shape.grid = static_cast<unsigned>(std::min<int64_t>(items, kResident));
  shape.block = S::kThreads;
  shape.shared_bytes = S::kSharedBytes;
  shape.programmatic = a.programmatic;
  return launch_programmatic(paged_decode_kernel<type, head_dim>, p, shape, stream);
}

template <PageType type>
cudaError_t launch_type(const PagedDecodeArgs& a, cudaStream_t stream) {
  switch (a.head_dim) {
    case 64:
      return launch_shape<type, 64>(a, stream);
    case 128:
      return launch_shape<type, 128>(a, stream);
    default:
      return launch_shape<type, 256>(a, stream);
  }
}

}  // namespace

int32_t decode_chunk(int32_t visible) {
  const uint32_t ceiling = std::bit_ceil(static_cast<uint32_t>(std::max(visible, 1)));
  return static_cast<int32_t>(std::max(256u, ceiling / 32));
}

size_t paged_decode_workspace(const PagedDecodeArgs& a) {
  return paged_decode_counters(a) +
         static_cast<size_t>(a.batch) * static_cast<size_t>(most_chunks(a.max_context)) *
             static_cast<size_t>(a.heads) * static_cast<size_t>(a.head_dim + 2) * 4;
}

bool supports(const PagedDecodeArgs& a) {
  if (a.batch < 0 || a.batch > kDecodeMaxBatch || a.kv_heads < 1 || a.heads < a.kv_heads ||
      a.heads % a.kv_heads != 0 || a.max_context < 0 || a.num_blocks < 1) {
    return false;
  }
  if (a.head_dim != 64 && a.head_dim != 128 && a.head_dim != 256) return false;
  return a.block_tokens > 0 && a.block_tokens % 16 == 0 && a.block_stride % 16 == 0 &&
         a.q_stride % 8 == 0 && aligned(a.q) && aligned(a.keys) && aligned(a.values) &&
         aligned(a.workspace) && a.workspace_bytes >= paged_decode_workspace(a);
}

cudaError_t launch_paged_decode(const PagedDecodeArgs& a, cudaStream_t stream) {
  if (!supports(a)) return cudaErrorNotSupported;
  if (a.batch == 0) return cudaSuccess;
  return a.page_type == PageType::kBF16 ? launch_type<PageType::kBF16>(a, stream)
                                        : launch_type<PageType::kFp8>(a, stream);
}

}  // namespace pelton::kernels::cuda
