// Launches of the CUDA kernels: defined beside the kernels, or as refusals in a build without CUDA.
#pragma once

#include "kernels/params/device_kernels.h"

namespace pelton::kernels::cuda {

Status rms_norm(const NormParams& params, device::Stream& stream);
Status layer_norm(const NormParams& params, device::Stream& stream);
Status rope_angles(const RopeAnglesParams& params, device::Stream& stream);
Status rope(const RopeParams& params, device::Stream& stream);
Status activate(const ActivateParams& params, device::Stream& stream);
Status soft_cap(const SoftCapParams& params, device::Stream& stream);
Status add(const AddParams& params, device::Stream& stream);
Status gather_rows(const GatherParams& params, device::Stream& stream);
Status embedding(const EmbeddingParams& params, device::Stream& stream);
Status append(const AppendParams& params, device::Stream& stream);
Status copy(const CopyParams& params, device::Stream& stream);
Status take_tokens(const TakeTokensParams& params, device::Stream& stream);
Status sample(const SampleParams& params, device::Stream& stream);
Status prepare(const PrepareParams& params, device::Stream& stream);
Status random_weights(const RandomWeightsParams& params, device::Stream& stream);

inline constexpr int64_t kSmallMRows = 32;  // of one launch
inline constexpr int64_t kWideMRows = 128;  // likewise
Status matmul_plain(const MatmulParams& params, device::Stream& stream);
Status matmul_small_m(const MatmulParams& params, device::Stream& stream);
Status matmul_wide_m(const MatmulParams& params, device::Stream& stream);
Status matmul_wide_m_fp8(const MatmulParams& params, device::Stream& stream);
Status matmul_gemm(const MatmulParams& params, device::Stream& stream);
Status matmul_cublaslt(const MatmulParams& params, device::Stream& stream);
Status matmul_gemm_codes(const MatmulParams& params, device::Stream& stream);
Status matmul_cublaslt_fp8(const MatmulParams& params, device::Stream& stream);
Status matmul_gemm_int4(const MatmulParams& params, device::Stream& stream);
Status matmul_cublaslt_int4(const MatmulParams& params, device::Stream& stream);
Status attention_paged_prefill(const AttentionParams& params, device::Stream& stream);
Status attention_paged_decode(const AttentionParams& params, device::Stream& stream);
Status attention_plain(const AttentionParams& params, device::Stream& stream);

}  // namespace pelton::kernels::cuda
