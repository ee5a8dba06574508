// Device memory copied by a kernel, which is faster than the driver's own copy: what bandwidth is
// measured with.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kLoads = 4;  // of 16 bytes, under way in each thread

__global__ void __launch_bounds__(kThreads) copy_kernel(CopyParams p) {
  enter_chain();
  const auto* from = reinterpret_cast<const uint4*>(p.from);
  auto* to = reinterpret_cast<uint4*>(p.to);
  const int64_t count = p.bytes / static_cast<int64_t>(sizeof(uint4));
  const int64_t first = int64_t{blockIdx.x} * kThreads * kLoads + threadIdx.x;
  uint4 values[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    if (first + i * kThreads < count) values[i] = from[first + i * kThreads];
  }
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    if (first + i * kThreads < count) to[first + i * kThreads] = values[i];
  }
}

}  // namespace

Status copy(const CopyParams& params, device::Stream& stream) {
  constexpr int64_t kBlockBytes = int64_t{kThreads} * kLoads * sizeof(uint4);
  if (params.bytes == 0) return {};
  launch_chained(copy_kernel, dim3(blocks_for(params.bytes, kBlockBytes)), kThreads, params,
                 handle(stream));
  return stream.launched("copy");
}

}  // namespace pelton::kernels::cuda
