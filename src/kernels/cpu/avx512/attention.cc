#include "kernels/cpu/levels.h"

namespace pelton::kernels::avx512 {

void fill_attention(AttentionKernels& /*kernels*/) {}

}  // namespace pelton::kernels::avx512
