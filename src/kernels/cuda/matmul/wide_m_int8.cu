#include "kernels/cuda/matmul/wide_m_launch.cuh"

namespace pelton::kernels::cuda {

cudaError_t launch_wide_m_int8(const WideMArgs& args, cudaStream_t stream) {
  return launch_wide_m_format<SmallMWeight::kInt8>(args, stream);
}

}  // namespace pelton::kernels::cuda
