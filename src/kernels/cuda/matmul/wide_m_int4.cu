#include "kernels/cuda/matmul/wide_m_launch.cuh"

namespace pelton::kernels::cuda {

cudaError_t launch_wide_m_int4(const WideMArgs& args, cudaStream_t stream) {
  return launch_wide_m_format<SmallMWeight::kInt4G128>(args, stream);
}

}  // namespace pelton::kernels::cuda
