// Sampled ids that never left the device become the next step's inputs.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void take_tokens_kernel(TakeTokensParams p) {
  enter_chain();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.rows) return;
  const int32_t id = p.ids[i];
  if (id < 0) p.ids[i] = p.tokens[-1 - id];
}

}  // namespace

Status take_tokens(const TakeTokensParams& params, device::Stream& stream) {
  if (params.rows == 0) return {};
  launch_chained(take_tokens_kernel, dim3(blocks_for(params.rows, kThreads)), kThreads, params,
                 handle(stream));
  return stream.launched("take_tokens");
}

}  // namespace pelton::kernels::cuda
