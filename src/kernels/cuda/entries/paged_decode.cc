// Decode attention as an entry of the list.
#include "kernels/cuda/attention/paged_decode.h"

#include <climits>

#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {

Status attention_paged_decode(const AttentionParams& p, device::Stream& stream) {
  const AttentionProblem& problem = p.problem;
  PagedDecodeArgs a;
  // bf16, as the entry asks.
  a.q = static_cast<const uint16_t*>(p.queries.data) + p.first_row * p.queries.stride;
  a.q_stride = p.queries.stride;
  a.keys = p.cache.keys;
  a.values = p.cache.values;
  a.block_stride = static_cast<int64_t>(p.cache.block_bytes);
  a.num_blocks = INT32_MAX;  // the tables name no block that is not there
  a.block_tokens = p.cache.block_tokens;
  a.page_type = p.cache.format == KvFormat::kFp8 ? PageType::kFp8 : PageType::kBF16;
  a.sequences = p.sequences;
  a.table_shift = p.table_shift;
  a.batch = static_cast<int32_t>(problem.num_sequences);
  a.max_context = static_cast<int32_t>(problem.max_context);
  a.heads = problem.heads;
  a.kv_heads = problem.kv_heads;
  a.head_dim = problem.head_dim;
  a.scale = p.variant.scale;
  a.soft_cap = p.variant.soft_cap;
  a.window = p.variant.sliding_window;
  a.sinks = p.variant.sinks;
  a.out = static_cast<uint16_t*>(p.out.data) + p.first_row * p.out.stride;
  a.out_stride = p.out.stride;
  a.workspace = p.workspace;
  a.counters = p.zeroed;
  a.workspace_bytes = paged_decode_workspace(a);  // of which the counters' share lies apart
  if (launch_paged_decode(a, static_cast<cudaStream_t>(stream.native())) == cudaErrorNotSupported)
    return internal_error("an attention that the list gave to paged_decode is not one of its kind");
  return stream.launched("paged_decode");
}

}  // namespace pelton::kernels::cuda
