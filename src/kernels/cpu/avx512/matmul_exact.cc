// Products of float activations with packed weights, AVX-512: a block of sixteen weight rows is
// dequantized to the very values that dequantize_row gives, then met by every activation row.
// An output is four partial sums, by k % 4, in block order.
#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/levels.h"

namespace pelton::kernels::avx512 {

void fill_matmul_exact(MatmulKernels& kernels);

namespace {

#include "kernels/cpu/shared/matmul_formats.inl"
#include "kernels/cpu/shared/matmul_isa_512.inl"

static_assert(Isa::kGroups * Isa::kRows == kTileRows);

#include "kernels/cpu/shared/matmul_exact.inl"

template <WeightFormat... kFormats>
void fill(MatmulKernels& kernels) {
  ((kernels.exact[static_cast<int>(kFormats)] = product<kFormats>), ...);
}

}  // namespace

void fill_matmul_exact(MatmulKernels& kernels) {
  using enum WeightFormat;
  fill<kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL, kIQ4_XS,
       kMXFP4>(kernels);
}

}  // namespace pelton::kernels::avx512
