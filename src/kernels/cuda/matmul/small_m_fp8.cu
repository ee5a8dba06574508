#include "kernels/cuda/matmul/small_m_launch.cuh"

namespace pelton::kernels::cuda {

cudaError_t launch_small_m_fp8(const SmallMArgs& args, cudaStream_t stream) {
  return launch_small_m_format<SmallMWeight::kFp8>(args, stream);
}

}  // namespace pelton::kernels::cuda
