// The small-m products as an entry of the list: more rows than the kernel takes go 32 at a time.
#include "kernels/cuda/matmul/small_m.h"

#include <algorithm>

#include "kernels/cuda/entries/small_m_args.h"
#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {

Status matmul_small_m(const MatmulParams& p, device::Stream& stream) {
  for (int64_t row = 0; row < p.problem.m; row += kSmallMRows) {
    const SmallMArgs a = small_m_args(p, row, std::min(kSmallMRows, p.problem.m - row));
    if (launch_small_m(a, static_cast<cudaStream_t>(stream.native())) == cudaErrorNotSupported)
      return internal_error("a product that the list gave to small_m is not one of its kind");
    if (Status s = stream.launched("small_m"); !s.ok()) return s;
  }
  return {};
}

}  // namespace pelton::kernels::cuda
