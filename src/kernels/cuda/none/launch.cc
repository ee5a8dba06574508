// A build without CUDA: the lists are there, their kernels are not.
#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {
namespace {

Status absent() { return unsupported("this build has no CUDA kernels"); }

}  // namespace

Status rms_norm(const NormParams& /*params*/, device::Stream& /*stream*/) { return absent(); }
Status layer_norm(const NormParams& /*params*/, device::Stream& /*stream*/) { return absent(); }
Status rope_angles(const RopeAnglesParams& /*params*/, device::Stream& /*stream*/) {
  return absent();
}
Status rope(const RopeParams& /*params*/, device::Stream& /*stream*/) { return absent(); }
Status activate(const ActivateParams& /*params*/, device::Stream& /*stream*/) { return absent(); }
Status soft_cap(const SoftCapParams& /*params*/, device::Stream& /*stream*/) { return absent(); }
Status add(const AddParams& /*params*/, device::Stream& /*stream*/) { return absent(); }
Status gather_rows(const GatherParams& /*params*/, device::Stream& /*stream*/) { return absent(); }
Status embedding(const EmbeddingParams& /*params*/, device::Stream& /*stream*/) { return absent(); }
Status append(const AppendParams& /*params*/, device::Stream& /*stream*/) { return absent(); }
Status take_tokens(const TakeTokensParams& /*params*/, device::Stream& /*stream*/) {
  return absent();
}
Status copy(const CopyParams& /*params*/, device::Stream& /*stream*/) { return absent(); }
Status sample(const SampleParams& /*params*/, device::Stream& /*stream*/) { return absent(); }
Status prepare(const PrepareParams& /*params*/, device::Stream& /*stream*/) { return absent(); }
Status random_weights(const RandomWeightsParams& /*params*/, device::Stream& /*stream*/) {
  return absent();
}
Status matmul_small_m(const MatmulParams& /*params*/, device::Stream& /*stream*/) {
  return absent();
}
Status matmul_wide_m(const MatmulParams& /*params*/, device::Stream& /*stream*/) {
  return absent();
}
Status matmul_wide_m_fp8(const MatmulParams& /*params*/, device::Stream& /*stream*/) {
  return absent();
}
Status matmul_gemm(const MatmulParams& /*params*/, device::Stream& /*stream*/) { return absent(); }
Status matmul_gemm_codes(const MatmulParams& /*params*/, device::Stream& /*stream*/) {
  return absent();
}
Status matmul_cublaslt_fp8(const MatmulParams& /*params*/, device::Stream& /*stream*/) {
  return absent();
}
Status matmul_gemm_int4(const MatmulParams& /*params*/, device::Stream& /*stream*/) {
  return absent();
}
Status matmul_cublaslt_int4(const MatmulParams& /*params*/, device::Stream& /*stream*/) {
  return absent();
}
Status attention_paged_prefill(const AttentionParams& /*params*/, device::Stream& /*stream*/) {
  return absent();
}
Status attention_paged_decode(const AttentionParams& /*params*/, device::Stream& /*stream*/) {
  return absent();
}
Status matmul_plain(const MatmulParams& /*params*/, device::Stream& /*stream*/) { return absent(); }
Status attention_plain(const AttentionParams& /*params*/, device::Stream& /*stream*/) {
  return absent();
}

}  // namespace pelton::kernels::cuda
