// Products of so many rows with 4-bit weights that writing W as bf16 once costs little beside them:
// W is dequantized into scratch, and what multiplies bf16 weights multiplies it.
#include "kernels/cuda/entries/gemm_args.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul/dequantize_int4.h"

namespace pelton::kernels::cuda {
namespace {

// `run` takes the product with the weight as bf16 and `rest` of the scratch. Only a kernel that
// waits for the one ahead before it reads W may do so: what it is not sure to launch goes to
// small_m as it came.
template <typename Run>
Status with_bf16_weight(const MatmulParams& p, device::Stream& stream, const Run& run) {
  DequantizeInt4Args a;
  a.weight = p.weight;
  a.out = p.workspace;
  a.n = static_cast<int32_t>(p.problem.n);
  a.k = static_cast<int32_t>(p.problem.k);
  MatmulParams product = p;
  product.problem.layout = WeightLayout::kSource;
  product.problem.format = WeightFormat::kBF16;
  product.weight = p.workspace;
  product.workspace = p.workspace + static_cast<size_t>(p.problem.n * p.problem.k) * 2;
  if (!supports(a) || !supports(gemm_args(product))) return matmul_small_m(p, stream);
  launch_dequantize_int4(a, static_cast<cudaStream_t>(stream.native()));
  if (Status s = stream.launched("dequantize_int4"); !s.ok()) return s;
  return run(product, stream);
}

}  // namespace

Status matmul_gemm_int4(const MatmulParams& p, device::Stream& stream) {
  return with_bf16_weight(p, stream, matmul_gemm);
}

Status matmul_cublaslt_int4(const MatmulParams& p, device::Stream& stream) {
  return with_bf16_weight(p, stream, matmul_cublaslt);
}

}  // namespace pelton::kernels::cuda
