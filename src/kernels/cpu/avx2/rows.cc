#include "kernels/cpu/levels.h"

namespace pelton::kernels::avx2 {

void fill_rows(RowKernels& /*kernels*/) {}

}  // namespace pelton::kernels::avx2
