#include <algorithm>

#include "paged_prefill_cases.h"

namespace pelton::bench_cuda {

using kernels::SequenceSlice;
using kernels::cuda::PagedPrefillArgs;

Buffer upload_slices(const std::vector<SequenceSlice>& slices) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(slices.data());
  return upload(std::vector<uint8_t>(bytes, bytes + slices.size() * sizeof(SequenceSlice)));
}

PrefillBatch make_prefill_batch(const PrefillCase& c, int layers, uint64_t seed) {
  constexpr size_t kMoreRows = 3;
  PrefillBatch b;
  b.pages = make_decode_batch(c.pages, layers, seed, &b.layer_bytes);
  const kernels::cuda::PagedDecodeArgs& d = b.pages.args;
  int32_t row = 0;
  for (size_t s = 0; s < c.rows.size(); ++s) {
    const int32_t* blocks = d.block_table + static_cast<int64_t>(s) * d.table_stride;
    b.slices.push_back({row, c.rows[s], c.pages.lengths[s], blocks - 1000});
    row += c.rows[s];
  }
  const size_t width = static_cast<size_t>(d.heads) * static_cast<size_t>(d.head_dim);
  b.q = Buffer(static_cast<size_t>(row) * width * 2);
  fill(b.q, Fill::kNormalBF16, 1.0f, seed + 5);
  b.out = Buffer((static_cast<size_t>(row) + kMoreRows) * width * 2);
  b.sequences = upload_slices(b.slices);
  b.workspace = Buffer(kernels::cuda::kPagedPrefillWorkspace);
  PagedPrefillArgs& a = b.args;
  a.q = b.q.as<void>();
  a.q_stride = static_cast<int64_t>(width);
  a.rows = row;
  a.keys = d.keys;
  a.values = d.values;
  a.block_stride = d.block_stride;
  a.num_blocks = d.num_blocks;
  a.block_tokens = d.block_tokens;
  a.page_type = d.page_type;
  a.sequences = b.sequences.as<SequenceSlice>();
  a.num_sequences = static_cast<int32_t>(c.rows.size());
  a.table_shift = 4000;
  a.heads = d.heads;
  a.kv_heads = d.kv_heads;
  a.head_dim = d.head_dim;
  a.scale = d.scale;
  a.key_scale = d.key_scale;
  a.value_scale = d.value_scale;
  a.soft_cap = d.soft_cap;
  a.window = d.window;
  a.sinks = d.sinks;
  a.out = b.out.as<void>();
  a.out_stride = static_cast<int64_t>(width);
  a.workspace = b.workspace.as<void>();
  return b;
}

}  // namespace pelton::bench_cuda
