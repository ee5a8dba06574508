#include "kernels/cuda/common/tile_launch.h"
#include "kernels/cuda/matmul/wide_m.h"
#include "kernels/cuda/matmul/wide_m_launch.h"

namespace pelton::kernels::cuda {

bool supports(const WideMArgs& args) {
  const SmallMArgs& a = args.product;
  if (a.m < 0 || a.m > kWideMColumns || a.n < 1 || a.k < 1) return false;
  if (a.epilogue == SmallMEpilogue::kSiluMul && a.n % 2 != 0) return false;
  const bool is_fp8 = a.format == SmallMWeight::kFp8;
  if (is_fp8 != (args.x_scale != nullptr)) return false;
  return fits_format(a) && aligned(a.x) && aligned(a.weight) &&
         a.x_stride % (is_fp8 ? 16 : 8) == 0 && a.x_stride >= a.k;
}

cudaError_t launch_wide_m(const WideMArgs& a, cudaStream_t stream) {
  if (!supports(a)) return cudaErrorNotSupported;
  if (a.product.m == 0) return cudaSuccess;
  switch (a.product.format) {
    case SmallMWeight::kBF16:
      return launch_wide_m_bf16(a, stream);
    case SmallMWeight::kFp8:
      return launch_wide_m_fp8(a, stream);
    case SmallMWeight::kInt8:
      return launch_wide_m_int8(a, stream);
    case SmallMWeight::kInt4G128:
      return launch_wide_m_int4(a, stream);
  }
  return cudaErrorNotSupported;
}

}  // namespace pelton::kernels::cuda
