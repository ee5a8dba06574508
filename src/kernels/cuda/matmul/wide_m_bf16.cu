#include "kernels/cuda/matmul/wide_m_launch.cuh"

namespace pelton::kernels::cuda {

cudaError_t launch_wide_m_bf16(const WideMArgs& args, cudaStream_t stream) {
  return launch_wide_m_format<SmallMWeight::kBF16>(args, stream);
}

}  // namespace pelton::kernels::cuda
