// A build without CUDA.
#include "device/device.h"

namespace pelton::device {

bool built_with_cuda() { return false; }

Result<std::unique_ptr<Device>> open_cuda(const CudaOptions& /*options*/) {
  return unsupported("this build has no CUDA backend");
}

}  // namespace pelton::device
