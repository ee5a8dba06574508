// One table of function pointers an ISA level. A level starts from the table of the level below and
// overrides what it does better; each level is built with its own flags and exports one symbol.
// Kernels take raw pointers, never allocate, own, throw or synchronise.
#pragma once

#include <span>

#include "base/cpu_features.h"
#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/row_kernels.h"

namespace pelton::kernels {

struct CpuKernels {
  IsaLevel level = IsaLevel::kGeneric;
  MatmulKernels matmul;
  RowKernels rows;
  AttentionKernels attention;
};

const CpuKernels& generic_kernels();
const CpuKernels& avx2_kernels();
const CpuKernels& avx512_kernels();
const CpuKernels& amx_kernels();

// The table of a level; its code must only be called where cpu_features() has the level.
const CpuKernels& kernels_for(IsaLevel level);

}  // namespace pelton::kernels
