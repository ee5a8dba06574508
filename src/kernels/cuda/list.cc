#include "kernels/cuda/list.h"

#include <algorithm>

#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {
namespace {

bool is_plain_format(WeightFormat format) {
  return format == WeightFormat::kF32 || format == WeightFormat::kF16 ||
         format == WeightFormat::kBF16;
}

// The plain kernels take anything the backend stores; faster ones undercut their cost.
bool plain_matmul_supports(const device::Caps& caps, const MatmulProblem& p) {
  return caps.is_hopper() && is_plain_format(p.format);
}

double plain_matmul_cost(const device::Caps& caps, const MatmulProblem& p) {
  constexpr int64_t kRowsAPass = 8;        // the weight is read once for so many rows
  constexpr double kMultiplyAdds = 10e12;  // a second, without tensor cores
  const auto passes = static_cast<double>((p.m + kRowsAPass - 1) / kRowsAPass);
  const auto weight = static_cast<double>(p.n * p.k) * weight_format_info(p.format).block_bytes;
  const double arithmetic = static_cast<double>(p.m) * static_cast<double>(p.n * p.k);
  return std::max(passes * weight / caps.bandwidth, arithmetic / kMultiplyAdds);
}

bool plain_attention_supports(const device::Caps& caps, const AttentionProblem& p) {
  return caps.is_hopper() && p.head_dim % 8 == 0 && p.head_dim <= 256;
}

double plain_attention_cost(const device::Caps& /*caps*/, const AttentionProblem& p) {
  constexpr double kKeys = 1e10;  // a second, over all heads
  return static_cast<double>(p.rows) * static_cast<double>(p.max_context) * p.heads / kKeys;
}

size_t no_matmul_scratch(const device::Caps& /*caps*/, const MatmulProblem& /*p*/) { return 0; }
size_t no_attention_scratch(const device::Caps& /*caps*/, const AttentionProblem& /*p*/) {
  return 0;
}

constexpr MatmulEntry kMatmul[] = {
    {"plain", plain_matmul_supports, plain_matmul_cost, no_matmul_scratch, matmul_plain},
};

constexpr AttentionEntry kAttention[] = {
    {"plain", plain_attention_supports, plain_attention_cost, no_attention_scratch,
     attention_plain},
};

}  // namespace

const DeviceKernels& device_kernels() {
  static constexpr DeviceKernels kKernels = {.matmul = kMatmul,
                                             .attention = kAttention,
                                             .rms_norm = rms_norm,
                                             .layer_norm = layer_norm,
                                             .rope_angles = rope_angles,
                                             .rope = rope,
                                             .activate = activate,
                                             .soft_cap = soft_cap,
                                             .add = add,
                                             .gather_rows = gather_rows,
                                             .embedding = embedding,
                                             .append = append,
                                             .sample = sample};
  return kKernels;
}

}  // namespace pelton::kernels::cuda
