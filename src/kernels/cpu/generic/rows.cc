#include "kernels/cpu/generic/vec.h"
#include "kernels/cpu/levels.h"

namespace pelton::kernels::generic {
namespace {

#include "kernels/cpu/shared/math.inl"
#include "kernels/cpu/shared/rows.inl"

}  // namespace

void fill_rows(RowKernels& kernels) { fill_row_table(kernels); }

}  // namespace pelton::kernels::generic
