#include "kernels/cpu/avx2/vec.h"
#include "kernels/cpu/levels.h"

namespace pelton::kernels::avx2 {
namespace {

#include "kernels/cpu/shared/math.inl"
#include "kernels/cpu/shared/rows.inl"

}  // namespace

void fill_rows(RowKernels& kernels) { fill_row_table(kernels); }

}  // namespace pelton::kernels::avx2
