// The CUDA backend's kernels, as ordered lists. Plain C++: choosing runs, and is tested, on a
// machine without a GPU or a toolkit.
#pragma once

#include "kernels/params/device_kernels.h"

namespace pelton::kernels::cuda {

const DeviceKernels& device_kernels();

}  // namespace pelton::kernels::cuda
