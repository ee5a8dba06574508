// Product and packing kernels of one ISA level.
#pragma once

namespace pelton::kernels {

struct MatmulKernels {};

}  // namespace pelton::kernels
