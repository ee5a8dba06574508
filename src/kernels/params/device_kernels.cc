#include "kernels/params/device_kernels.h"

#include <fmt/format.h>

#include "kernels/params/device_weights.h"

namespace pelton::kernels {

std::string to_string(const MatmulProblem& p) {
  return fmt::format("m {}, n {}, k {}, {}, {} to {}{}{}{}{}", p.m, p.n, p.k,
                     p.layout == WeightLayout::kSource ? weight_format_name(p.format)
                                                       : weight_layout_name(p.layout),
                     dtype_name(p.x_type), dtype_name(p.out_type), p.bias ? ", bias" : "",
                     p.accumulate ? ", accumulate" : "", p.gated ? ", gated" : "",
                     p.normed ? ", normed" : "");
}

std::string to_string(const AttentionProblem& p) {
  return fmt::format(
      "{} {} rows of {} sequences, context {}, {} heads over {} of {}, {} pages of {}{}{}{}{}",
      p.rows, dtype_name(p.query_type), p.num_sequences, p.max_context, p.heads, p.kv_heads,
      p.head_dim, kv_format_name(p.format), p.block_tokens, p.window ? ", window" : "",
      p.soft_cap ? ", soft cap" : "", p.sinks ? ", sinks" : "", p.alibi ? ", alibi" : "");
}

}  // namespace pelton::kernels
