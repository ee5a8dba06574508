#include "ops/step_context.h"

#include "kernels/cpu/kernel_table.h"

namespace pelton::ops {

const kernels::CpuKernels& kernels_of(IsaLevel level) { return kernels::kernels_for(level); }

}  // namespace pelton::ops
