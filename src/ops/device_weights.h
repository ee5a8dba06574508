// Weights quantized while they are loaded onto a device, or made there: for the folders above,
// which see kernels through ops alone.
#pragma once

#include "device/stream.h"
#include "kernels/params/device_weights.h"
#include "ops/step_context.h"

namespace pelton::ops {

// Queues the making of random weights. kUnsupported where the kernels know none.
Status random_weights(const kernels::DeviceKernels& kernels, device::Stream& stream,
                      const kernels::RandomWeightsParams& params);

}  // namespace pelton::ops
