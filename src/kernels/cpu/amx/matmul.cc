#include "kernels/cpu/levels.h"

namespace pelton::kernels::amx {

void fill_matmul(MatmulKernels& /*kernels*/) {}

}  // namespace pelton::kernels::amx
