// The small-m products as an entry of the list: more rows than the kernel takes go 32 at a time.
#include "kernels/cuda/matmul/small_m.h"

#include <algorithm>

#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {

Status matmul_small_m(const MatmulParams& p, device::Stream& stream) {
  const MatmulProblem& problem = p.problem;
  const int64_t x_bytes = p.x.stride * dtype_bytes(p.x.type);
  const int64_t out_bytes = p.out.stride * dtype_bytes(p.out.type);
  for (int64_t row = 0; row < problem.m; row += kSmallMRows) {
    SmallMArgs a;
    a.x = static_cast<const std::byte*>(p.x.data) + row * x_bytes;
    a.x_stride = p.x.stride;
    a.norm_weight = problem.normed ? p.norm_weight : nullptr;
    a.norm_eps = p.norm_eps;
    a.weight = p.weight;
    a.format = problem.layout == WeightLayout::kInt4Groups     ? SmallMWeight::kInt4G128
               : problem.layout == WeightLayout::kInt8Channels ? SmallMWeight::kInt8
               : problem.layout == WeightLayout::kFp8Channels  ? SmallMWeight::kFp8
                                                               : SmallMWeight::kBF16;
    a.scale = p.scale;
    a.epilogue = problem.gated ? SmallMEpilogue::kSiluMul : SmallMEpilogue::kNone;
    a.bias = p.bias;
    a.out = static_cast<std::byte*>(p.out.data) + row * out_bytes;
    a.residual = problem.accumulate ? a.out : nullptr;
    a.out_stride = p.out.stride;
    a.out_f32 = p.out.type == DType::kF32;
    a.m = static_cast<int32_t>(std::min<int64_t>(kSmallMRows, problem.m - row));
    a.n = static_cast<int32_t>(problem.n);
    a.k = static_cast<int32_t>(problem.k);
    if (launch_small_m(a, static_cast<cudaStream_t>(stream.native())) == cudaErrorNotSupported)
      return internal_error("a product that the list gave to small_m is not one of its kind");
    if (Status s = stream.launched("small_m"); !s.ok()) return s;
  }
  return {};
}

}  // namespace pelton::kernels::cuda
