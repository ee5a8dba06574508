#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sampling/sample.h"

namespace pelton::kernels::cuda {

Status sample(const SampleParams& params, device::Stream& stream) {
  if (launch_sample(params, handle(stream)) == cudaErrorNotSupported) {
    return unsupported("no CUDA sampling kernel for rows of this shape");
  }
  return stream.launched("sample");
}

}  // namespace pelton::kernels::cuda
