// Stores a step's keys and values in their page slots, and all that comes between the projection of
// queries, keys and values and attention. One warp a (token, head), a lane every 32nd element of
// the head (at most 256), through a row of floats in shared memory where rotation finds its pairs.
// Bytes moved: each element read once and written once; int8 takes the head's largest magnitude
// first.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/rows.cuh"
#include "kernels/cuda/elementwise/prepare_heads.h"
#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxHeadDim = 256;
constexpr int kPerLane = kMaxHeadDim / 32;

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

// Stores one head of one token, given as floats.
template <typename T>
__device__ void store_head(const KvLayerView& cache, bool values, int64_t slot, int64_t head,
                           const float* from, int lane) {
  const int64_t token_bytes = static_cast<int64_t>(cache.head_dim) * sizeof(T);
  std::byte* start = (values ? cache.values : cache.keys) +
                     slot / cache.block_tokens * static_cast<int64_t>(cache.block_bytes) +
                     head * cache.block_tokens * kv_head_token_bytes(cache.format, cache.head_dim);
  const int64_t at = slot % cache.block_tokens;
  store<T>(from, start + at * token_bytes,
           start + cache.block_tokens * token_bytes + at * static_cast<int64_t>(sizeof(float)),
           cache.head_dim, lane);
}

// Keys with z = 0, values with z = 1.
template <typename T>
__global__ void __launch_bounds__(kWarps * 32) append_kernel(AppendParams p) {
  __shared__ float heads[kWarps][kMaxHeadDim];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* head_row = heads[threadIdx.x / 32];
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const KvLayerView& cache = p.cache;
  enter_chain();
  if (item >= p.rows * cache.num_kv_heads) return;
  const int64_t row = item / cache.num_kv_heads;
  const int64_t head = item % cache.num_kv_heads;
  const int64_t slot = p.slots[row];
  if (slot < 0) return;
  const bool values = blockIdx.z == 1;
  const Rows& from = values ? p.values : p.keys;
  for (int i = lane; i < cache.head_dim; i += 32)
    head_row[i] = load_at(from, row, head * cache.head_dim + i);
  __syncwarp();
  store_head<T>(cache, values, slot, head, head_row, lane);
}

// Element i of a head after rotation; `head` holds the whole head.
__device__ inline float rotated(const PrepareParams& p, const float* head, int64_t row, int i) {
  const int half = static_cast<int>(p.half);
  if (i >= 2 * half) return head[i];
  const int pair = p.adjacent ? i / 2 : i % half;
  const bool is_first = p.adjacent ? i % 2 == 0 : i < half;
  const float other = p.adjacent ? head[i ^ 1] : head[is_first ? i + half : i - half];
  const float along = __fmul_rn(head[i], p.cosines[row * p.half + pair]);
  const float across = __fmul_rn(other, p.sines[row * p.half + pair]);
  return is_first ? __fsub_rn(along, across) : __fadd_rn(along, across);
}

// Queries, keys and values of a row are heads + 2 kv_heads heads, one after another.
template <typename T>
__global__ void __launch_bounds__(kWarps * 32) prepare_kernel(PrepareParams p) {
  __shared__ float heads[kWarps][kMaxHeadDim];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* head_row = heads[threadIdx.x / 32];
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const KvLayerView& cache = p.append.cache;
  const int d = cache.head_dim;
  const int64_t all = p.heads + 2 * cache.num_kv_heads;
  enter_chain();
  if (item >= p.append.rows * all) return;
  const int64_t row = item / all;
  const int64_t head = item % all;
  const bool is_query = head < p.heads;
  const bool is_value = head >= p.heads + cache.num_kv_heads;
  __nv_bfloat16* data = row_of<__nv_bfloat16>(p.qkv, row) + head * d;
  float x[kPerLane];
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const int i = lane + 32 * j;
    x[j] = i < d ? to_float(data[i]) : 0.0f;
    squares = fmaf(x[j], x[j], squares);
  }
  const float* weight = is_value ? nullptr : is_query ? p.query_norm : p.key_norm;
  if (weight != nullptr) {
    const float mean = warp_sum(squares) / static_cast<float>(d);
    const float scale = 1.0f / sqrtf(mean + (is_query ? p.query_eps : p.key_eps));
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int i = lane + 32 * j;
      if (i < d) x[j] = __fmul_rn(__fmul_rn(x[j], scale), weight[i]);
    }
  }
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    if (lane + 32 * j < d) head_row[lane + 32 * j] = x[j];
  }
  __syncwarp();
  if (!is_value && p.cosines != nullptr) {
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      if (lane + 32 * j < d) x[j] = rotated(p, head_row, row, lane + 32 * j);
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      if (lane + 32 * j < d) head_row[lane + 32 * j] = x[j];
    }
    __syncwarp();
  }
  if (!is_value) {
    for (int i = lane; i < d; i += 32) data[i] = from_float<__nv_bfloat16>(head_row[i]);
  }
  const int64_t slot = p.append.slots[row];
  if (is_query || slot < 0) return;
  store_head<T>(cache, is_value, slot, head - p.heads - (is_value ? cache.num_kv_heads : 0),
                head_row, lane);
}

// Calls run(zero of the pages' element type).
template <typename Run>
void with_page_type(KvFormat format, const Run& run) {
  switch (format) {
    case KvFormat::kF32:
      return run(float());
    case KvFormat::kF16:
      return run(__half());
    case KvFormat::kBF16:
      return run(__nv_bfloat16());
    case KvFormat::kFp8:
      return run(__nv_fp8_e4m3());
    case KvFormat::kInt8:
      return run(int8_t());
  }
}

}  // namespace

Status append(const AppendParams& params, device::Stream& stream) {
  if (params.cache.head_dim > kMaxHeadDim) return unsupported("heads of more than 256 elements");
  const dim3 grid(blocks_for(params.rows * params.cache.num_kv_heads, kWarps), 1, 2);
  with_page_type(params.cache.format, [&](auto element) {
    launch_chained(append_kernel<decltype(element)>, grid, kWarps * 32, params, handle(stream));
  });
  return stream.launched("append");
}

Status prepare(const PrepareParams& params, device::Stream& stream) {
  const KvLayerView& cache = params.append.cache;
  if (cache.head_dim > kMaxHeadDim) return unsupported("heads of more than 256 elements");
  if (launch_prepare_heads(params, handle(stream))) return stream.launched("prepare");
  const int64_t heads = params.append.rows * (params.heads + 2 * cache.num_kv_heads);
  with_page_type(cache.format, [&](auto element) {
    launch_chained(prepare_kernel<decltype(element)>, blocks_for(heads, kWarps), kWarps * 32,
                   params, handle(stream));
  });
  return stream.launched("prepare");
}

}  // namespace pelton::kernels::cuda
