// Attention over pages, without tensor cores: one block a (row, head) whose warps take the visible
// keys in turn, warp w those at positions w, w + kWarps, ... of the whole context, each with its
// own running maximum, sum and weighted values; the warps' states merge in order. So a row's bits
// depend on its own context alone. A lane holds every 32nd element of the head. Any page format,
// head sizes up to 256, every variant. Bytes moved: each head's keys and values once a row.
#include <type_traits>

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/rows.cuh"
#include "kernels/cuda/launch.h"

namespace pelton::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kMaxPerLane = 8;  // head_dim <= 256

struct Query {
  const int32_t* blocks;
  int32_t position;
};

// The sequence that holds a row, by bisection: sequences lie in the order of their rows.
__device__ Query find_row(const AttentionParams& p, int32_t row) {
  int64_t low = 0;
  int64_t high = p.problem.num_sequences;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (p.sequences[middle].first_row <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const SequenceSlice& s = p.sequences[low];
  return {reinterpret_cast<const int32_t*>(reinterpret_cast<const char*>(s.blocks) + p.table_shift),
          s.context_len - s.num_rows + row - s.first_row};
}

template <typename T>
struct Head {
  const T* codes;      // of one token
  const float* scale;  // of int8 pages

  __device__ Head(const KvLayerView& cache, const std::byte* base, int64_t block, int slot,
                  int head) {
    const std::byte* start =
        base + block * static_cast<int64_t>(cache.block_bytes) +
        head * cache.block_tokens * kv_head_token_bytes(cache.format, cache.head_dim);
    codes = reinterpret_cast<const T*>(start) + static_cast<int64_t>(slot) * cache.head_dim;
    scale = reinterpret_cast<const float*>(start + static_cast<int64_t>(cache.block_tokens) *
                                                       cache.head_dim * sizeof(T)) +
            slot;
  }
  __device__ float at(int i) const {
    if constexpr (std::is_same_v<T, int8_t>) {
      return to_float(codes[i]) * *scale;
    } else {
      return to_float(codes[i]);
    }
  }
};

template <typename T>
__global__ void __launch_bounds__(kWarps * 32) attention_kernel(AttentionParams p) {
  enter_chain();
  __shared__ float warp_max_[kWarps];
  __shared__ float warp_sum_[kWarps];
  __shared__ float warp_values[kWarps][kMaxPerLane * 32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t row = p.first_row + blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  const KvLayerView& cache = p.cache;
  const int d = cache.head_dim;
  const int kv_head = head / (p.problem.heads / cache.num_kv_heads);
  const Query where = find_row(p, static_cast<int32_t>(row));
  float q[kMaxPerLane];
  float values[kMaxPerLane];
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) {
    const int at = lane + 32 * i;
    q[i] = at < d ? load_at(p.queries, row, static_cast<int64_t>(head) * d + at) : 0.0f;
    values[i] = 0.0f;
  }
  float largest = -INFINITY;
  float sum = 0.0f;
  const int window = p.variant.sliding_window;
  const int first = window > 0 ? max(0, where.position - window + 1) : 0;
  for (int t = first / kWarps * kWarps + warp; t <= where.position; t += kWarps) {
    if (t < first) continue;
    const int64_t block = where.blocks[t / cache.block_tokens];
    const int slot = t % cache.block_tokens;
    const Head<T> key(cache, cache.keys, block, slot, kv_head);
    float score = 0.0f;
#pragma unroll
    for (int i = 0; i < kMaxPerLane; ++i) {
      if (lane + 32 * i < d) score = fmaf(q[i], key.at(lane + 32 * i), score);
    }
    score = warp_sum(score) * p.variant.scale;
    if (p.variant.soft_cap > 0.0f) score = p.variant.soft_cap * tanhf(score / p.variant.soft_cap);
    if (p.variant.alibi_slopes != nullptr)
      score += p.variant.alibi_slopes[head] * static_cast<float>(t - where.position);
    const float next = fmaxf(largest, score);
    const float keep = expf(largest - next);
    const float weight = expf(score - next);
    largest = next;
    sum = fmaf(sum, keep, weight);
    const Head<T> value(cache, cache.values, block, slot, kv_head);
#pragma unroll
    for (int i = 0; i < kMaxPerLane; ++i) {
      if (lane + 32 * i < d) values[i] = fmaf(values[i], keep, weight * value.at(lane + 32 * i));
    }
  }
  if (lane == 0) {
    warp_max_[warp] = largest;
    warp_sum_[warp] = sum;
  }
#pragma unroll
  for (int i = 0; i < kMaxPerLane; ++i) warp_values[warp][lane + 32 * i] = values[i];
  __syncthreads();

  float all = p.variant.sinks != nullptr ? p.variant.sinks[head] : -INFINITY;
  for (int w = 0; w < kWarps; ++w) all = fmaxf(all, warp_max_[w]);
  float total = p.variant.sinks != nullptr ? expf(p.variant.sinks[head] - all) : 0.0f;
  // A warp without a key has the maximum -inf, and weight zero.
  for (int w = 0; w < kWarps; ++w) total = fmaf(warp_sum_[w], expf(warp_max_[w] - all), total);
  for (int i = static_cast<int>(threadIdx.x); i < d; i += kWarps * 32) {
    float value = 0.0f;
    for (int w = 0; w < kWarps; ++w)
      value = fmaf(warp_values[w][i], expf(warp_max_[w] - all), value);
    store_at(p.out, row, static_cast<int64_t>(head) * d + i,
             where.position < 0 ? 0.0f : value / total);
  }
}

template <typename T>
void launch(const AttentionParams& p, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(p.problem.rows), static_cast<unsigned>(p.problem.heads));
  launch_chained(attention_kernel<T>, grid, kWarps * 32, p, stream);
}

}  // namespace

Status attention_plain(const AttentionParams& params, device::Stream& stream) {
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
  return stream.launched("attention_plain");
}

}  // namespace pelton::kernels::cuda
