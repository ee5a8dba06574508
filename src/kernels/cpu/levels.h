// Each level's contribution to its table: fills or overrides the slots it has code for. Included by
// the levels only.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace pelton::kernels {

namespace generic {
void fill_matmul(MatmulKernels& kernels);
void fill_rows(RowKernels& kernels);
void fill_attention(AttentionKernels& kernels);
}  // namespace generic

namespace avx2 {
void fill_matmul(MatmulKernels& kernels);
void fill_rows(RowKernels& kernels);
void fill_attention(AttentionKernels& kernels);
}  // namespace avx2

namespace avx512 {
void fill_matmul(MatmulKernels& kernels);
void fill_rows(RowKernels& kernels);
void fill_attention(AttentionKernels& kernels);
}  // namespace avx512

namespace amx {
void fill_matmul(MatmulKernels& kernels);
void fill_attention(AttentionKernels& kernels);
}  // namespace amx

}  // namespace pelton::kernels
