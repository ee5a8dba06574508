// The scalar reference of device sampling: sorts everything, keeps every weight. Written from
// docs/sampling.md alone, so that the CPU pipeline and the device's kernel are both held against
// it.
#pragma once

#include "kernels/params/sampling.h"

namespace pelton::kernels::ref {

// As params/sampling.h describes it, with every pointer to host memory.
void sample_rows(const SampleParams& params);

}  // namespace pelton::kernels::ref
