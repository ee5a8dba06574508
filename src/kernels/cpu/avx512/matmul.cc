#include "kernels/cpu/levels.h"

namespace pelton::kernels::avx512 {

void fill_matmul_int8(MatmulKernels& kernels);
void fill_matmul_exact(MatmulKernels& kernels);
void fill_matmul_plain(MatmulKernels& kernels);

void fill_matmul(MatmulKernels& kernels) {
  fill_matmul_int8(kernels);
  fill_matmul_exact(kernels);
  fill_matmul_plain(kernels);
}

}  // namespace pelton::kernels::avx512
