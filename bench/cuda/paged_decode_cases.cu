#include <algorithm>
#include <cmath>
#include <numeric>

#include "paged_decode_cases.h"

namespace pelton::bench_cuda {

DecodeBatch make_decode_batch(const DecodeCase& c, int layers, uint64_t seed, size_t* layer_bytes) {
  const bool is_fp8 = c.type == kernels::cuda::PageType::kFp8;
  const int batch = static_cast<int>(c.lengths.size());
  const int longest = c.lengths.empty() ? 0 : *std::max_element(c.lengths.begin(), c.lengths.end());
  const int table_stride = std::max(1, (longest + c.block_tokens - 1) / c.block_tokens);
  int blocks = 0;
  for (const int length : c.lengths) blocks += (length + c.block_tokens - 1) / c.block_tokens;

  std::vector<int32_t> order(static_cast<size_t>(blocks));
  std::iota(order.begin(), order.end(), 0);
  uint32_t state = static_cast<uint32_t>(seed) * 747796405u + 1;
  for (size_t i = order.size(); i > 1; --i) {
    state = state * 1664525u + 1013904223u;
    std::swap(order[i - 1], order[(state >> 8) % i]);
  }
  std::vector<int32_t> table(
      static_cast<size_t>(std::max(batch, 1)) * static_cast<size_t>(table_stride), -1);
  size_t next = 0;
  for (size_t b = 0; b < c.lengths.size(); ++b) {
    const int count = (c.lengths[b] + c.block_tokens - 1) / c.block_tokens;
    for (int i = 0; i < count; ++i) {
      table[b * static_cast<size_t>(table_stride) + static_cast<size_t>(i)] = order[next++];
    }
  }

  const size_t half = static_cast<size_t>(c.kv_heads) * static_cast<size_t>(c.block_tokens) *
                      static_cast<size_t>(c.head_dim) * (is_fp8 ? 1 : 2);
  *layer_bytes = 2 * half * static_cast<size_t>(std::max(blocks, 1));
  DecodeBatch d;
  const size_t row = static_cast<size_t>(c.heads) * static_cast<size_t>(c.head_dim);
  d.q = Buffer(row * 2 * static_cast<size_t>(std::max(batch, 1)));
  fill(d.q, Fill::kNormalBF16, 1.0f, seed + 1);
  d.pages = Buffer(*layer_bytes * static_cast<size_t>(layers));
  fill(d.pages, is_fp8 ? Fill::kNormalFp8 : Fill::kNormalBF16, 1.0f, seed + 2);
  d.table = upload(table);
  d.lengths = upload(c.lengths.empty() ? std::vector<int32_t>{0} : c.lengths);
  d.sinks = Buffer(static_cast<size_t>(c.heads) * 4);
  fill(d.sinks, Fill::kFloats, 2.0f, seed + 3);
  d.out = Buffer(row * 2 * static_cast<size_t>(std::max(batch, 1)));

  kernels::cuda::PagedDecodeArgs& a = d.args;
  a.q = d.q.as<void>();
  a.q_stride = static_cast<int64_t>(row);
  a.keys = d.pages.as<void>();
  a.values = d.pages.as<void>(half);
  a.block_stride = static_cast<int64_t>(2 * half);
  a.num_blocks = std::max(blocks, 1);
  a.block_tokens = c.block_tokens;
  a.page_type = c.type;
  a.block_table = d.table.as<int32_t>();
  a.table_stride = table_stride;
  a.context_lens = d.lengths.as<int32_t>();
  a.batch = batch;
  a.max_context = longest;
  a.heads = c.heads;
  a.kv_heads = c.kv_heads;
  a.head_dim = c.head_dim;
  a.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  a.key_scale = is_fp8 ? 0.75f : 1.0f;
  a.value_scale = is_fp8 ? 1.25f : 1.0f;
  a.soft_cap = c.soft_cap;
  a.window = c.window;
  a.sinks = c.sinks ? d.sinks.as<float>() : nullptr;
  a.out = d.out.as<void>();
  a.out_stride = static_cast<int64_t>(row);
  a.workspace_bytes = kernels::cuda::paged_decode_workspace(a);
  d.workspace = Buffer(a.workspace_bytes);
  a.workspace = d.workspace.as<void>();
  return d;
}

}  // namespace pelton::bench_cuda
