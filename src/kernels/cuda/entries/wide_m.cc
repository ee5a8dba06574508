// The products of up to 256 rows as an entry of the list: 128 at a time. Rows of FP8 weights become
// codes before (code_rows.cc).
#include "kernels/cuda/matmul/wide_m.h"

#include <algorithm>

#include "kernels/cuda/entries/small_m_args.h"
#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {

static_assert(kWideMRows == kWideMColumns);

Status matmul_wide_m(const MatmulParams& p, device::Stream& stream) {
  for (int64_t row = 0; row < p.problem.m; row += kWideMRows) {
    WideMArgs args;
    args.product = small_m_args(p, row, std::min(kWideMRows, p.problem.m - row));
    if (launch_wide_m(args, static_cast<cudaStream_t>(stream.native())) == cudaErrorNotSupported)
      return internal_error("a product that the list gave to wide_m is not one of its kind");
    if (Status s = stream.launched("wide_m"); !s.ok()) return s;
  }
  return {};
}

}  // namespace pelton::kernels::cuda
