#include "kernels/cpu/levels.h"

namespace pelton::kernels::avx2 {

void fill_matmul(MatmulKernels& /*kernels*/) {}

}  // namespace pelton::kernels::avx2
