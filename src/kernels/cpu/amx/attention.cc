#include "kernels/cpu/levels.h"

namespace pelton::kernels::amx {

void fill_attention(AttentionKernels& /*kernels*/) {}

}  // namespace pelton::kernels::amx
