// A warp a head, each lane a run of consecutive elements: one access of up to 16 bytes reads them,
// one writes them. The other element of a pair lies in the same place of lane ^ 16, or beside it.
#include <climits>

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/rows.cuh"
#include "kernels/cuda/elementwise/prepare_heads.h"

namespace pelton::kernels::cuda {
namespace {

constexpr int kWarps = 8;

// `words` 32-bit words at once.
template <int words>
__device__ __forceinline__ void load_words(uint32_t (&w)[words], const void* from) {
  if constexpr (words == 4) {
    const uint4 v = *static_cast<const uint4*>(from);
    w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
  } else if constexpr (words == 2) {
    const uint2 v = *static_cast<const uint2*>(from);
    w[0] = v.x, w[1] = v.y;
  } else {
    w[0] = *static_cast<const uint32_t*>(from);
  }
}
template <int words>
__device__ __forceinline__ void store_words(void* to, const uint32_t (&w)[words]) {
  if constexpr (words == 4) {
    *static_cast<uint4*>(to) = make_uint4(w[0], w[1], w[2], w[3]);
  } else if constexpr (words == 2) {
    *static_cast<uint2*>(to) = make_uint2(w[0], w[1]);
  } else {
    *static_cast<uint32_t*>(to) = w[0];
  }
}

// A lane's elements of a head.
template <int count>
struct Run {
  float x[count];

  __device__ __forceinline__ void load(const __nv_bfloat16* from) {
    uint32_t words[count / 2];
    load_words(words, from);
#pragma unroll
    for (int i = 0; i < count / 2; ++i) {
      x[2 * i] = low_bf16(words[i]);
      x[2 * i + 1] = high_bf16(words[i]);
    }
  }
  __device__ __forceinline__ void store(__nv_bfloat16* to) const {
    uint32_t words[count / 2];
#pragma unroll
    for (int i = 0; i < count / 2; ++i) words[i] = pack_bf16x2(x[2 * i], x[2 * i + 1]);
    store_words(to, words);
  }
  __device__ __forceinline__ void store(__nv_fp8_e4m3* to) const {
#pragma unroll
    for (int i = 0; i < count / 2; ++i) {
      reinterpret_cast<__nv_fp8x2_storage_t*>(to)[i] =
          __nv_cvt_float2_to_fp8x2(make_float2(x[2 * i], x[2 * i + 1]), __NV_SATFINITE, __NV_E4M3);
    }
  }

  __device__ __forceinline__ void norm(const float* weight, float eps, int lane) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < count; ++i) squares = fmaf(x[i], x[i], squares);
    const float mean = warp_sum(squares) / (32.0f * count);
    const float scale = 1.0f / sqrtf(mean + eps);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      x[i] = __fmul_rn(__fmul_rn(x[i], scale), weight[count * lane + i]);
    }
  }

  __device__ __forceinline__ void rotate(const float* cosines, const float* sines, bool adjacent,
                                         int lane) {
    float other[count];
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float across = __shfl_xor_sync(~0u, x[i], 16);
      other[i] = adjacent ? x[i ^ 1] : across;
    }
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int pair = adjacent ? (count * lane + i) / 2 : count * (lane % 16) + i;
      const bool is_first = adjacent ? i % 2 == 0 : lane < 16;
      const float along = __fmul_rn(x[i], cosines[pair]);
      const float across = __fmul_rn(other[i], sines[pair]);
      x[i] = is_first ? __fsub_rn(along, across) : __fadd_rn(along, across);
    }
  }
};

template <typename T, int head_dim>
__global__ void __launch_bounds__(kWarps * 32) prepare_heads_kernel(PrepareParams p) {
  constexpr int kCount = head_dim / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned item = blockIdx.x * kWarps + threadIdx.x / 32;
  const KvLayerView& cache = p.append.cache;
  const auto kv_heads = static_cast<unsigned>(cache.num_kv_heads);
  const auto heads = static_cast<unsigned>(p.heads);
  const unsigned all = heads + 2 * kv_heads;
  enter_chain();
  const unsigned row = item / all;
  if (row >= p.append.rows) return;
  const unsigned head = item - row * all;
  const bool is_query = head < heads;
  const bool is_value = head >= heads + kv_heads;
  __nv_bfloat16* data = row_of<__nv_bfloat16>(p.qkv, row) + head * head_dim + kCount * lane;
  Run<kCount> run;
  run.load(data);
  if (!is_value) {
    const float* weight = is_query ? p.query_norm : p.key_norm;
    if (weight != nullptr) run.norm(weight, is_query ? p.query_eps : p.key_eps, lane);
    if (p.cosines != nullptr) {
      const int64_t at = static_cast<int64_t>(row) * (head_dim / 2);
      run.rotate(p.cosines + at, p.sines + at, p.adjacent, lane);
    }
    run.store(data);
  }
  if (is_query) return;
  const int32_t slot = p.append.slots[row];
  if (slot < 0) return;
  const auto tokens = static_cast<unsigned>(cache.block_tokens);
  const unsigned block = static_cast<unsigned>(slot) / tokens;
  const unsigned in_block = static_cast<unsigned>(slot) - block * tokens;
  const unsigned kv_head = head - heads - (is_value ? kv_heads : 0);
  std::byte* page = (is_value ? cache.values : cache.keys) +
                    static_cast<int64_t>(block) * static_cast<int64_t>(cache.block_bytes);
  run.store(reinterpret_cast<T*>(page) +
            (static_cast<int64_t>(kv_head) * tokens + in_block) * head_dim + kCount * lane);
}

template <typename T>
bool launch_type(const PrepareParams& p, cudaStream_t stream) {
  const int64_t heads = p.append.rows * (p.heads + 2 * p.append.cache.num_kv_heads);
  const unsigned grid = blocks_for(heads, kWarps);
  switch (p.append.cache.head_dim) {
    case 64:
      launch_chained(prepare_heads_kernel<T, 64>, grid, kWarps * 32, p, stream);
      return true;
    case 128:
      launch_chained(prepare_heads_kernel<T, 128>, grid, kWarps * 32, p, stream);
      return true;
    case 256:
      launch_chained(prepare_heads_kernel<T, 256>, grid, kWarps * 32, p, stream);
      return true;
    default:
      return false;
  }
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

bool launch_prepare_heads(const PrepareParams& p, cudaStream_t stream) {
  const KvLayerView& cache = p.append.cache;
  const bool rotates_whole = p.cosines == nullptr || 2 * p.half == cache.head_dim;
  const int64_t heads = p.append.rows * (p.heads + 2 * cache.num_kv_heads);
  if (!rotates_whole || heads > INT_MAX || p.qkv.stride % 8 != 0 || !is_aligned(p.qkv.data) ||
      !is_aligned(cache.keys) || !is_aligned(cache.values) || cache.block_bytes % 16 != 0) {
    return false;
  }
  if (cache.format == KvFormat::kBF16) return launch_type<__nv_bfloat16>(p, stream);
  if (cache.format == KvFormat::kFp8) return launch_type<__nv_fp8_e4m3>(p, stream);
  return false;
}

}  // namespace pelton::kernels::cuda
