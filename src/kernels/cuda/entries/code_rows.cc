// Products of many rows with FP8 or int8 weights: the rows, or their norms, become codes of that
// kind, a scale each, and the matrix units multiply codes. Sums of FP8 stay in the matrix unit
// (about 14 bits): what rounding the rows costs is more.
#include "kernels/cuda/entries/code_rows.h"

#include <algorithm>

#include "kernels/cuda/entries/gemm_args.h"
#include "kernels/cuda/entries/small_m_args.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/library/cublaslt.h"
#include "kernels/cuda/matmul/gemm.h"
#include "kernels/cuda/matmul/quantize_rows.h"
#include "kernels/cuda/matmul/wide_m.h"

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
    a.norm_weight = p.problem.normed ? p.norm_weight : nullptr;
    a.norm_eps = p.norm_eps;
    a.codes = codes;
    a.scale = scale;
    a.rows = static_cast<int32_t>(p.problem.m);
    a.columns = static_cast<int32_t>(p.problem.k);
    a.kind = is_fp8(p) ? RowCodes::kFp8 : RowCodes::kInt8;
    return a;
  }
  Status quantize(const MatmulParams& p, device::Stream& stream) const {
    launch_quantize_rows(quantization(p), static_cast<cudaStream_t>(stream.native()));
    return stream.launched("quantize_rows");
  }

  GemmArgs product(const MatmulParams& p) const {
    GemmArgs a = gemm_args(p);
    a.x = codes;
    a.x_stride = p.problem.k;
    a.type = is_fp8(p) ? GemmType::kFp8 : GemmType::kInt8;
    a.scales = GemmScales::kRows;
    a.x_scale = scale;
    a.w_scale = p.scale;
    a.splits = code_splits(p.problem);
    if (a.splits > 1) a.split_sums = reinterpret_cast<float*>(rest);
    return a;
  }
};

// Rows that do not lie as the kernels want them.
Status matmul_irregular(const MatmulParams& p, device::Stream& stream) {
  if (!p.problem.normed) {
    if (is_fp8(p)) return matmul_small_m(p, stream);
    if (!p.problem.gated) return matmul_plain(p, stream);
  }
  return internal_error("rows of a product of codes are not aligned");
}

}  // namespace

Status matmul_gemm_codes(const MatmulParams& p, device::Stream& stream) {
  const CodeRows rows(p);
  const GemmArgs product = rows.product(p);
  if (!supports(rows.quantization(p)) || !supports(product)) return matmul_irregular(p, stream);
  if (Status s = rows.quantize(p, stream); !s.ok()) return s;
  launch_gemm(product, static_cast<cudaStream_t>(stream.native()));
  return stream.launched("gemm of codes");
}

Status matmul_wide_m_fp8(const MatmulParams& p, device::Stream& stream) {
  const CodeRows rows(p);
  if (!supports(rows.quantization(p))) return matmul_irregular(p, stream);
  if (Status s = rows.quantize(p, stream); !s.ok()) return s;
  for (int64_t row = 0; row < p.problem.m; row += kWideMRows) {
    WideMArgs args;
    args.product = small_m_args(p, row, std::min(kWideMRows, p.problem.m - row));
    args.product.x = rows.codes + row * p.problem.k;
    args.product.x_stride = p.problem.k;
    args.product.norm_weight = nullptr;
    args.x_scale = rows.scale + row;
    if (launch_wide_m(args, static_cast<cudaStream_t>(stream.native())) == cudaErrorNotSupported)
      return internal_error("a product that the list gave to wide_m_fp8 is not one of its kind");
    if (Status s = stream.launched("wide_m of codes"); !s.ok()) return s;
  }
  return {};
}

Status matmul_cublaslt_fp8(const MatmulParams& p, device::Stream& stream) {
  const CodeRows rows(p);
  const CublasLtProblem product = {.m = p.problem.m,
                                   .n = p.problem.n,
                                   .k = p.problem.k,
                                   .out_stride = p.out.stride,
                                   .type = CublasLtType::kFp8,
                                   .out_f32 = p.out.type == DType::kF32,
                                   .accumulate = p.problem.accumulate,
                                   .fast_accumulation = true,
                                   .row_scales = true};
  const bool is_regular = supports(rows.quantization(p)) && supports(rows.product(p)) &&
                          reinterpret_cast<uintptr_t>(p.scale) % 16 == 0;
  if (!is_regular || p.cublaslt == nullptr || !p.cublaslt->prepare(product))
    return matmul_gemm_codes(p, stream);
  if (Status s = rows.quantize(p, stream); !s.ok()) return s;
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
