// Attention of steps with prompt rows as an entry of the list.
#include "kernels/cuda/attention/paged_prefill.h"

#include <climits>

#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {

Status attention_paged_prefill(const AttentionParams& p, device::Stream& stream) {
  const AttentionProblem& problem = p.problem;
  PagedPrefillArgs a;
  a.q = p.queries.data;
  a.q_stride = p.queries.stride;
  a.rows = p.first_row + problem.rows;
  a.keys = p.cache.keys;
  a.values = p.cache.values;
  a.block_stride = static_cast<int64_t>(p.cache.block_bytes);
  a.num_blocks = INT32_MAX;  // the tables name no block that is not there
  a.block_tokens = p.cache.block_tokens;
  a.page_type = p.cache.format == KvFormat::kFp8 ? PageType::kFp8 : PageType::kBF16;
  a.sequences = p.sequences;
  a.num_sequences = static_cast<int32_t>(problem.num_sequences);
  a.table_shift = p.table_shift;
  a.heads = problem.heads;
  a.kv_heads = problem.kv_heads;
  a.head_dim = problem.head_dim;
  a.scale = p.variant.scale;
  a.soft_cap = p.variant.soft_cap;
  a.window = p.variant.sliding_window;
  a.sinks = p.variant.sinks;
  a.out = p.out.data;
  a.out_stride = p.out.stride;
  a.workspace = p.workspace;
  if (launch_paged_prefill(a, static_cast<cudaStream_t>(stream.native())) == cudaErrorNotSupported)
    return internal_error("an attention that the list gave to paged_prefill is not of its kind");
  return stream.launched("paged_prefill");
}

}  // namespace pelton::kernels::cuda
