#include "kernels/cpu/levels.h"

namespace pelton::kernels::avx2 {

void fill_matmul_int8(MatmulKernels& kernels);

void fill_matmul(MatmulKernels& kernels) { fill_matmul_int8(kernels); }

}  // namespace pelton::kernels::avx2
