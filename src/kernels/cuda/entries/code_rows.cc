// Products of many rows with FP8 weights: the rows become FP8, a scale each, and the matrix units
// multiply codes. Sums stay in the matrix unit (about 14 bits): what rounding the rows costs is
// more.
#include "kernels/cuda/entries/code_rows.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/library/cublaslt.h"
#include "kernels/cuda/matmul/gemm.h"
#include "kernels/cuda/matmul/quantize_rows.h"

namespace pelton::kernels::cuda {
namespace {

bool is_fp8(const MatmulParams& p) { return p.problem.layout == WeightLayout::kFp8Channels; }

// Rows as codes, in the product's scratch.
struct CodeRows {
  std::byte* codes;
  float* scale;
  std::byte* rest;  // of the scratch

  explicit CodeRows(const MatmulParams& p)
      : codes(p.workspace),
        scale(reinterpret_cast<float*>(codes + code_rows_padded(p.problem.m * p.problem.k))),
        rest(codes + code_rows_bytes(p.problem.m, p.problem.k)) {}

  QuantizeRowsArgs quantization(const MatmulParams& p) const {
    QuantizeRowsArgs a;
    a.x = p.x.data;
    a.x_stride = p.x.stride;
    a.codes = codes;
    a.scale = scale;
    a.rows = static_cast<int32_t>(p.problem.m);
    a.columns = static_cast<int32_t>(p.problem.k);
    a.kind = is_fp8(p) ? RowCodes::kFp8 : RowCodes::kInt8;
    return a;
  }
};

GemmArgs gemm_args(const MatmulParams& p, const CodeRows& rows) {
  const MatmulProblem& problem = p.problem;
  GemmArgs a;
  a.x = rows.codes;
  a.x_stride = problem.k;
  a.weight = p.weight;
  a.type = is_fp8(p) ? GemmType::kFp8 : GemmType::kInt8;
  a.scales = GemmScales::kRows;
  a.epilogue = problem.gated ? GemmEpilogue::kSiluMul : GemmEpilogue::kNone;
  a.x_scale = rows.scale;
  a.w_scale = p.scale;
  a.bias = p.bias;
  a.out = p.out.data;
  a.out_stride = p.out.stride;
  a.out_f32 = p.out.type == DType::kF32;
  if (problem.accumulate) {
    a.residual = static_cast<const float*>(p.out.data);
    a.residual_stride = p.out.stride;
  }
  a.m = static_cast<int32_t>(problem.m);
  a.n = static_cast<int32_t>(problem.n);
  a.k = static_cast<int32_t>(problem.k);
  return a;
}

}  // namespace

Status matmul_gemm_codes(const MatmulParams& p, device::Stream& stream) {
  const CodeRows rows(p);
  const QuantizeRowsArgs quantization = rows.quantization(p);
  const GemmArgs product = gemm_args(p, rows);
  if (!supports(quantization) || !supports(product)) {
    if (is_fp8(p)) return matmul_small_m(p, stream);
    if (!p.problem.gated) return matmul_plain(p, stream);
    return internal_error("rows of a gated product with int8 weights are not aligned");
  }
  auto* native = static_cast<cudaStream_t>(stream.native());
  launch_quantize_rows(quantization, native);
  if (Status s = stream.launched("quantize_rows"); !s.ok()) return s;
  launch_gemm(product, native);
  return stream.launched("gemm of codes");
}

Status matmul_cublaslt_fp8(const MatmulParams& p, device::Stream& stream) {
  const CodeRows rows(p);
  const QuantizeRowsArgs quantization = rows.quantization(p);
  const CublasLtProblem product = {.m = p.problem.m,
                                   .n = p.problem.n,
                                   .k = p.problem.k,
                                   .out_stride = p.out.stride,
                                   .type = CublasLtType::kFp8,
                                   .out_f32 = p.out.type == DType::kF32,
                                   .accumulate = p.problem.accumulate,
                                   .fast_accumulation = true,
                                   .row_scales = true};
  const bool is_regular = supports(quantization) && supports(gemm_args(p, rows)) &&
                          reinterpret_cast<uintptr_t>(p.scale) % 16 == 0;
  if (!is_regular || p.cublaslt == nullptr || !p.cublaslt->prepare(product))
    return matmul_gemm_codes(p, stream);
  launch_quantize_rows(quantization, static_cast<cudaStream_t>(stream.native()));
  if (Status s = stream.launched("quantize_rows"); !s.ok()) return s;
  const std::string failed = p.cublaslt->product(product,
                                                 {.x = rows.codes,
                                                  .weight = p.weight,
                                                  .out = p.out.data,
                                                  .x_scale = rows.scale,
                                                  .w_scale = p.scale,
                                                  .workspace = rows.rest},
                                                 stream.native());
  if (!failed.empty()) return internal_error(failed);
  return stream.launched("cublaslt_fp8");
}

}  // namespace pelton::kernels::cuda
