// Row-wise (norm, rotary, activation, top-k) kernels of one ISA level.
#pragma once

namespace pelton::kernels {

struct RowKernels {};

}  // namespace pelton::kernels
