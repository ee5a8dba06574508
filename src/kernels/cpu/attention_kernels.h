// Attention and page kernels of one ISA level.
#pragma once

namespace pelton::kernels {

struct AttentionKernels {};

}  // namespace pelton::kernels
