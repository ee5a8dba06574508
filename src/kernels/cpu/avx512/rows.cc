#include "kernels/cpu/avx512/vec.h"
#include "kernels/cpu/levels.h"

namespace pelton::kernels::avx512 {
namespace {

#include "kernels/cpu/shared/math.inl"
#include "kernels/cpu/shared/rows.inl"

}  // namespace

void fill_rows(RowKernels& kernels) { fill_row_table(kernels); }

}  // namespace pelton::kernels::avx512
