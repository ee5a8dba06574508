// Products of many rows as an entry of the list. What does not lie as the kernel wants it goes
// through small_m, in whose rows the list would otherwise have put it.
#include "kernels/cuda/matmul/gemm.h"

#include "kernels/cuda/entries/gemm_args.h"
#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {

Status matmul_gemm(const MatmulParams& p, device::Stream& stream) {
  const GemmArgs a = gemm_args(p);
  if (!supports(a)) return matmul_small_m(p, stream);
  launch_gemm(a, static_cast<cudaStream_t>(stream.native()));
  return stream.launched("gemm");
}

}  // namespace pelton::kernels::cuda
