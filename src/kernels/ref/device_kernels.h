// The scalar references as a device's kernels: they run on the host, in the order of the stream,
// over memory that the host can read. For devices of tests.
#pragma once

#include "kernels/params/device_kernels.h"

namespace pelton::kernels::ref {

const DeviceKernels& device_kernels();

}  // namespace pelton::kernels::ref
