#include "kernels/cuda/matmul/small_m_launch.cuh"

namespace pelton::kernels::cuda {

cudaError_t launch_small_m_bf16(const SmallMArgs& args, cudaStream_t stream) {
  return launch_small_m_format<SmallMWeight::kBF16>(args, stream);
}

}  // namespace pelton::kernels::cuda
