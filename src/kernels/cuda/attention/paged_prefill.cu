#include <algorithm>
#include <numeric>

#include "kernels/cuda/attention/paged_prefill.h"
#include "kernels/cuda/attention/paged_prefill_kernel.cuh"
#include "kernels/cuda/common/tile_launch.h"

namespace pelton::kernels::cuda {

namespace {

constexpr int kMultiprocessors = 132;  // of an H200; sizes the grid only

template <PageType type, int head_dim>
cudaError_t encode_maps(const PagedPrefillArgs& a, PagedPrefillParams& p) {
  TileMap q;
  q.base = a.q;
  q.dimensions = 3;
  q.size[0] = static_cast<uint64_t>(head_dim);
  q.size[1] = static_cast<uint64_t>(a.heads);
  q.size[2] = static_cast<uint64_t>(a.rows);
  q.stride_bytes[1] = static_cast<uint64_t>(head_dim) * 2;
  q.stride_bytes[2] = static_cast<uint64_t>(a.q_stride) * 2;
  q.box_rows = static_cast<uint32_t>(p.group);
  q.box_depth = static_cast<uint32_t>(p.tile_tokens);
  if (cudaError_t e = encode_tile_map(q, &p.q_map); e != cudaSuccess) return e;
  if (type == PageType::kFp8) return cudaSuccess;
  PageMap page;
  page.row_bytes = head_dim * 2;
  page.rows = static_cast<uint64_t>(a.kv_heads) * static_cast<uint64_t>(a.block_tokens);
  page.blocks = static_cast<uint64_t>(a.num_blocks);
  page.block_stride = static_cast<uint64_t>(a.block_stride);
  page.box_rows = static_cast<uint32_t>(p.box_keys);
  page.base = a.keys;
  if (cudaError_t e = encode_page_map(page, &p.key_map); e != cudaSuccess) return e;
  page.base = a.values;
  return encode_page_map(page, &p.value_map);
}

template <PageType type, int head_dim>
cudaError_t launch_shape(const PagedPrefillArgs& a, cudaStream_t stream) {
  using S = PrefillShape<type, head_dim>;
  PagedPrefillParams p = {};
  p.group = a.heads / a.kv_heads;
  p.tile_tokens = kPrefillRows / p.group;
  p.block_tokens = a.block_tokens;
  p.box_keys = std::gcd(a.block_tokens, S::kPieceKeys);
  if (cudaError_t e = encode_maps<type, head_dim>(a, p); e != cudaSuccess) return e;
  p.keys = static_cast<const std::byte*>(a.keys);
  p.values = static_cast<const std::byte*>(a.values);
  p.block_stride = a.block_stride;
  p.sequences = a.sequences;
  p.table_shift = a.table_shift;
  p.sinks = a.sinks;
  p.out = static_cast<__nv_bfloat16*>(a.out);
  p.out_stride = a.out_stride;
  p.counter = static_cast<unsigned*>(a.workspace);
  p.score_scale = a.scale * a.key_scale;
  p.soft_cap = a.soft_cap;
  p.value_scale = a.value_scale;
  p.num_sequences = a.num_sequences;
  p.kv_heads = a.kv_heads;
  p.window = a.window;
  const int64_t items = (a.rows / p.tile_tokens + a.num_sequences) * a.kv_heads;
  LaunchShape shape;
  shape.grid = static_cast<unsigned>(std::min<int64_t>(items, kMultiprocessors));
  shape.block = S::kThreads;
  shape.shared_bytes = S::kSharedBytes;
  shape.programmatic = a.programmatic;
  if (cudaError_t e = cudaMemsetAsync(a.workspace, 0, kPagedPrefillWorkspace, stream);
      e != cudaSuccess) {
    return e;
  }
  return launch_programmatic(paged_prefill_kernel<type, head_dim>, p, shape, stream);
}

template <PageType type>
cudaError_t launch_type(const PagedPrefillArgs& a, cudaStream_t stream) {
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

bool supports(const PagedPrefillArgs& a) {
  if (a.rows < 0 || a.num_sequences < 0 || a.num_sequences > kPrefillMaxSequences ||
      a.kv_heads < 1 || a.heads < a.kv_heads || a.heads % a.kv_heads != 0 ||
      a.heads / a.kv_heads > kPrefillRows || a.num_blocks < 1 || a.window < 0) {
    return false;
  }
  if (a.head_dim != 64 && a.head_dim != 128 && a.head_dim != 256) return false;
  return a.block_tokens > 0 && a.block_tokens % 16 == 0 && a.block_stride % 16 == 0 &&
         a.q_stride % 8 == 0 && a.out_stride % 8 == 0 && aligned(a.q) && aligned(a.out) &&
         aligned(a.keys) && aligned(a.values) && aligned(a.workspace) && a.workspace != nullptr;
}

cudaError_t launch_paged_prefill(const PagedPrefillArgs& a, cudaStream_t stream) {
  if (!supports(a)) return cudaErrorNotSupported;
  if (a.rows == 0 || a.num_sequences == 0) return cudaSuccess;
  return a.page_type == PageType::kFp8 ? launch_type<PageType::kFp8>(a, stream)
                                       : launch_type<PageType::kBF16>(a, stream);
}

}  // namespace pelton::kernels::cuda
