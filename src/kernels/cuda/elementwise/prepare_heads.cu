// A lane takes eight consecutive elements of a head: one access of 16 bytes reads them, one writes
// them. The other element of a pair lies in the same place half the head's lanes away, or beside
// it. Angles and places are a step's and are read before the kernel directly ahead has ended.
#include <climits>

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/rows.cuh"
#include "kernels/cuda/elementwise/prepare_heads.h"

namespace pelton::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Of the pairs that a lane's eight elements of a head belong to.
template <int lanes>
struct Angles {
  float cosines[8] = {};
  float sines[8] = {};

  __device__ __forceinline__ void load(const PrepareParams& p, unsigned row, int lane) {
    const int64_t first = static_cast<int64_t>(row) * (4 * lanes);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int pair = p.adjacent ? 4 * lane + i / 2 : 8 * (lane % (lanes / 2)) + i;
      cosines[i] = p.cosines[first + pair];
      sines[i] = p.sines[first + pair];
    }
  }
};

// A lane's eight elements of a head, which `lanes` lanes hold.
template <int lanes>
struct Run {
  float x[8];
  int lane;  // among the head's

  __device__ __forceinline__ void load(const __nv_bfloat16* from) {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    const uint32_t w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = low_bf16(w[i]);
      x[2 * i + 1] = high_bf16(w[i]);
    }
  }
  __device__ __forceinline__ void store(__nv_bfloat16* to) const {
    *reinterpret_cast<uint4*>(to) = make_uint4(pack_bf16x2(x[0], x[1]), pack_bf16x2(x[2], x[3]),
                                               pack_bf16x2(x[4], x[5]), pack_bf16x2(x[6], x[7]));
  }
  __device__ __forceinline__ void store(__nv_fp8_e4m3* to) const {
    uint32_t words[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t codes =
          __nv_cvt_float2_to_fp8x2(make_float2(x[2 * i], x[2 * i + 1]), __NV_SATFINITE, __NV_E4M3);
      words[i / 2] |= codes << i % 2 * 16;
    }
    *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
  }

  // All lanes of a warp call both of these; a head without `weight`, or that does not rotate, keeps
  // its elements.
  __device__ __forceinline__ void norm(const float* weight, float eps) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) squares = fmaf(x[i], x[i], squares);
#pragma unroll
    for (int step = lanes / 2; step > 0; step /= 2) {
      squares += __shfl_xor_sync(~0u, squares, step);
    }
    if (weight == nullptr) return;
    const float scale = 1.0f / sqrtf(squares / (8.0f * lanes) + eps);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = __fmul_rn(__fmul_rn(x[i], scale), weight[8 * lane + i]);
  }

  __device__ __forceinline__ void rotate(const Angles<lanes>& angles, bool adjacent, bool rotates) {
    float other[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float across = __shfl_xor_sync(~0u, x[i], lanes / 2);
      other[i] = adjacent ? x[i ^ 1] : across;
    }
    if (!rotates) return;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const bool is_first = adjacent ? i % 2 == 0 : lane < lanes / 2;
      const float along = __fmul_rn(x[i], angles.cosines[i]);
      const float across = __fmul_rn(other[i], angles.sines[i]);
      x[i] = is_first ? __fsub_rn(along, across) : __fadd_rn(along, across);
    }
  }
};

template <typename T, int head_dim>
__global__ void __launch_bounds__(kThreads) prepare_heads_kernel(PrepareParams p) {
  constexpr int kLanes = head_dim / 8;
  const unsigned item = (blockIdx.x * kThreads + threadIdx.x) / kLanes;
  const KvLayerView& cache = p.append.cache;
  const auto kv_heads = static_cast<unsigned>(cache.num_kv_heads);
  const auto heads = static_cast<unsigned>(p.heads);
  const unsigned all = heads + 2 * kv_heads;
  const bool is_there = item / all < p.append.rows;
  const unsigned row = is_there ? item / all : 0;
  const unsigned head = is_there ? item - row * all : 0;
  const bool is_query = head < heads;
  const bool is_value = head >= heads + kv_heads;
  Run<kLanes> run;
  run.lane = static_cast<int>(threadIdx.x) % kLanes;
  Angles<kLanes> angles;
  if (p.cosines != nullptr) angles.load(p, row, run.lane);
  const int32_t slot = is_there && !is_query ? p.append.slots[row] : -1;
  enter_chain();
  __nv_bfloat16* data = row_of<__nv_bfloat16>(p.qkv, row) + head * head_dim + 8 * run.lane;
  run.load(data);
  if (p.query_norm != nullptr || p.key_norm != nullptr) {
    const float* weight = is_value ? nullptr : is_query ? p.query_norm : p.key_norm;
    run.norm(weight, is_query ? p.query_eps : p.key_eps);
  }
  if (p.cosines != nullptr) run.rotate(angles, p.adjacent, !is_value);
  if (!is_there) return;
  if (!is_value) run.store(data);
  if (slot < 0) return;
  const auto tokens = static_cast<unsigned>(cache.block_tokens);
  const unsigned block = static_cast<unsigned>(slot) / tokens;
  const unsigned in_block = static_cast<unsigned>(slot) - block * tokens;
  const unsigned kv_head = head - heads - (is_value ? kv_heads : 0);
  std::byte* page = (is_value ? cache.values : cache.keys) +
                    static_cast<int64_t>(block) * static_cast<int64_t>(cache.block_bytes);
  run.store(reinterpret_cast<T*>(page) +
            (static_cast<int64_t>(kv_head) * tokens + in_block) * head_dim + 8 * run.lane);
}

template <typename T>
bool launch_type(const PrepareParams& p, cudaStream_t stream) {
  const int64_t heads = p.append.rows * (p.heads + 2 * p.append.cache.num_kv_heads);
  const unsigned grid = blocks_for(heads * p.append.cache.head_dim / 8, kThreads);
  switch (p.append.cache.head_dim) {
    case 64:
      launch_chained(prepare_heads_kernel<T, 64>, grid, kThreads, p, stream);
      return true;
    case 128:
      launch_chained(prepare_heads_kernel<T, 128>, grid, kThreads, p, stream);
      return true;
    case 256:
      launch_chained(prepare_heads_kernel<T, 256>, grid, kThreads, p, stream);
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
  if (!rotates_whole || heads > INT_MAX / 32 || p.qkv.stride % 8 != 0 || !is_aligned(p.qkv.data) ||
      !is_aligned(cache.keys) || !is_aligned(cache.values) || cache.block_bytes % 16 != 0) {
    return false;
  }
  if (cache.format == KvFormat::kBF16) return launch_type<__nv_bfloat16>(p, stream);
  if (cache.format == KvFormat::kFp8) return launch_type<__nv_fp8_e4m3>(p, stream);
  return false;
}

}  // namespace pelton::kernels::cuda
