// Stores a step's keys and values in their page slots: one warp a (token, KV head), keys by blocks
// with z = 0 and values with z = 1. Each element is read once as f32 and written once in the page's
// format; int8 takes the head's largest magnitude first.
#include "kernels/cuda/common/convert.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {
namespace {

constexpr int kWarps = 4;

template <typename T>
__device__ void store(const float* from, std::byte* codes, std::byte* /*scale*/, int head_dim,
                      int lane) {
  T* to = reinterpret_cast<T*>(codes);
  for (int i = lane; i < head_dim; i += 32) to[i] = from_float<T>(from[i]);
}

template <>
__device__ void store<int8_t>(const float* from, std::byte* codes, std::byte* scale, int head_dim,
                              int lane) {
  float largest = 0;
  for (int i = lane; i < head_dim; i += 32) largest = fmaxf(largest, fabsf(from[i]));
  const float step = __fdiv_rn(warp_max(largest), 127.0f);
  const float inverse = step == 0.0f ? 0.0f : __frcp_rn(step);
  int8_t* to = reinterpret_cast<int8_t*>(codes);
  for (int i = lane; i < head_dim; i += 32) {
    const float code = fminf(fmaxf(__fmul_rn(from[i], inverse), -127.0f), 127.0f);
    to[i] = static_cast<int8_t>(__float2int_rn(code));
  }
  if (lane == 0) *reinterpret_cast<float*>(scale) = step;
}

template <typename T>
__global__ void __launch_bounds__(kWarps * 32) append_kernel(AppendParams p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const KvLayerView& cache = p.cache;
  if (item >= p.rows * cache.num_kv_heads) return;
  const int64_t row = item / cache.num_kv_heads;
  const int64_t head = item % cache.num_kv_heads;
  const bool values = blockIdx.z == 1;
  const float* from = values ? p.values + row * p.value_stride : p.keys + row * p.key_stride;
  const int64_t slot = p.slots[row];
  const int64_t token_bytes = static_cast<int64_t>(cache.head_dim) * sizeof(T);
  std::byte* start = (values ? cache.values : cache.keys) +
                     slot / cache.block_tokens * static_cast<int64_t>(cache.block_bytes) +
                     head * cache.block_tokens * kv_head_token_bytes(cache.format, cache.head_dim);
  const int64_t at = slot % cache.block_tokens;
  store<T>(from + head * cache.head_dim, start + at * token_bytes,
           start + cache.block_tokens * token_bytes + at * static_cast<int64_t>(sizeof(float)),
           cache.head_dim, lane);
}

template <typename T>
void launch(const AppendParams& p, cudaStream_t stream) {
  const dim3 grid(blocks_for(p.rows * p.cache.num_kv_heads, kWarps), 1, 2);
  append_kernel<T><<<grid, kWarps * 32, 0, stream>>>(p);
}

}  // namespace

Status append(const AppendParams& params, device::Stream& stream) {
  switch (params.cache.format) {
    case KvFormat::kF32:
      launch<float>(params, handle(stream));
      break;
    case KvFormat::kF16:
      launch<__half>(params, handle(stream));
      break;
    case KvFormat::kBF16:
      launch<__nv_bfloat16>(params, handle(stream));
      break;
    case KvFormat::kFp8:
      launch<__nv_fp8_e4m3>(params, handle(stream));
      break;
    case KvFormat::kInt8:
      launch<int8_t>(params, handle(stream));
      break;
  }
  return stream.launched("append");
}

}  // namespace pelton::kernels::cuda
