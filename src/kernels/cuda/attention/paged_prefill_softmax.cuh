// The online softmax of paged_prefill over accumulators of 64 rows.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/attention/paged_decode_fold.cuh"
#include "kernels/cuda/attention/paged_prefill_items.cuh"
#include "kernels/cuda/common/mma.cuh"

namespace pelton::kernels::cuda {

// Two rows of a lane; maxima and scores in units of log2.
struct RowPair {
  float highest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};  // of this lane's keys alone
  float rescale[2] = {1.0f, 1.0f};
  float multiplier[2];  // of raw scores
  int last[2];          // key that each row still sees
  int first[2];         // and the first one

  __device__ __forceinline__ void begin(const PagedPrefillParams& p, const PrefillItem& item,
                                        int row) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      highest[h] = -INFINITY;
      sum[h] = 0.0f;
      multiplier[h] = p.score_scale * kLog2E;
      last[h] = item.first_position + (row + 8 * h) / p.group;
      first[h] = p.window > 0 ? last[h] - p.window + 1 : 0;
    }
  }
};

// Scores in place become softmax weights, 2^shift at the new maxima.
template <int keys, int shift>
__device__ __forceinline__ void fold_scores(const PagedPrefillParams& p, RowPair& rows,
                                            float (&scores)[keys / 2], int first_key,
                                            bool is_masked, int t) {
  float multiplier[2] = {rows.multiplier[0], rows.multiplier[1]};
  if (p.soft_cap > 0.0f) {
    // cap * tanh(s / cap) = cap - 2 cap / (1 + e^(2 s / cap))
    const float inner[2] = {2.0f * multiplier[0] / p.soft_cap, 2.0f * multiplier[1] / p.soft_cap};
    const float outer = p.soft_cap * kLog2E;
#pragma unroll
    for (int i = 0; i < keys / 2; ++i) {
      scores[i] =
          outer - __fdividef(2.0f * outer, 1.0f + power_of_two(scores[i] * inner[i / 2 % 2]));
    }
    multiplier[0] = multiplier[1] = 1.0f;
  }
  if (is_masked) {
#pragma unroll
    for (int i = 0; i < keys / 2; ++i) {
      const int key = first_key + 8 * (i / 4) + 2 * t + (i & 1);
      const int h = i / 2 % 2;
      if (key > rows.last[h] || key < rows.first[h]) scores[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float highest = scores[2 * h];
#pragma unroll
    for (int i = 0; i < keys / 2; i += 4) {
      highest = fmaxf(highest, fmaxf(scores[i + 2 * h], scores[i + 2 * h + 1]));
    }
    highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
    highest = fmaxf(rows.highest[h], highest * multiplier[h]);
    const float base = highest == -INFINITY ? 0.0f : highest;
    rows.rescale[h] = power_of_two(rows.highest[h] - base);
    rows.highest[h] = highest;
    const float offset = static_cast<float>(shift) - base;
    float sum = rows.sum[h] * rows.rescale[h];
#pragma unroll
    for (int i = 0; i < keys / 2; i += 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& s = scores[i + 2 * h + j];
        s = power_of_two(fmaf(s, multiplier[h], offset));
        sum += s;
      }
    }
    rows.sum[h] = sum;
  }
}

// Weights as the A operand: sixteen keys a step.
template <bool is_f16, int keys>
__device__ __forceinline__ void pack_weights(const float (&scores)[keys / 2],
                                             uint32_t (&weights)[keys / 16][4]) {
#pragma unroll
  for (int i = 0; i < keys / 16; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float low = scores[8 * i + 2 * j];
      const float high = scores[8 * i + 2 * j + 1];
      weights[i][j] = is_f16 ? pack_f16x2(low, high) : pack_bf16x2(low, high);
    }
  }
}

}  // namespace pelton::kernels::cuda
