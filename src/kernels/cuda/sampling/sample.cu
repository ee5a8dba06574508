#include "kernels/cuda/common/tile_launch.h"
#include "kernels/cuda/sampling/sample.h"
#include "kernels/cuda/sampling/sample_kernel.cuh"

namespace pelton::kernels::cuda {

bool supports(const SampleParams& p) {
  return p.rows >= 0 && p.vocab_size >= 1 && p.vocab_size <= kSampleMaxVocab &&
         p.logits_stride >= p.vocab_size;
}

cudaError_t launch_sample(const SampleParams& p, cudaStream_t stream) {
  if (!supports(p)) return cudaErrorNotSupported;
  if (p.rows == 0) return cudaSuccess;
  LaunchShape shape;
  shape.grid = static_cast<unsigned>(p.rows);
  shape.block = kSampleThreads;
  shape.shared_bytes = sizeof(SampleShared);
  return launch_programmatic(sample_kernel, p, shape, stream);
}

}  // namespace pelton::kernels::cuda
