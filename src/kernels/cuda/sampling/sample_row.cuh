// One row of logits as a block reads it: its scan for candidates, and the passes over all tokens
// that a row needs whose answer does not lie among those.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/common/async.cuh"
#include "kernels/cuda/sampling/sample_search.cuh"
#include "kernels/cuda/sampling/sample_weight.cuh"
#include "kernels/params/sampling.h"

namespace pelton::kernels::cuda {

// Elements are counted from the 16-byte boundary at or before the row, in groups of four.
struct RowView {
  const float* base;
  int offset;  // of id 0
  int end;     // of the last id, + 1
  int groups;
  int vocab_size;

  __device__ RowView(const float* row, int vocab)
      : offset(static_cast<int>(reinterpret_cast<uintptr_t>(row) / 4 % 4)), vocab_size(vocab) {
    base = row - offset;
    end = offset + vocab;
    groups = (end + 3) / 4;
  }
  // Four elements, those outside the row too: no branch, so that several are under way at a time.
  __device__ __forceinline__ float4 load(int group) const {
    float4 v = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    if (group < groups) v = __ldcg(reinterpret_cast<const float4*>(base) + group);
    return v;
  }
  // What lies outside the row becomes -infinity.
  __device__ __forceinline__ float4 inside(float4 v, int group) const {
    const int at = 4 * group;
    if (at >= offset && at + 4 <= end) return v;
    const auto is_inside = [&](int i) { return at + i >= offset && at + i < end; };
    return make_float4(is_inside(0) ? v.x : -INFINITY, is_inside(1) ? v.y : -INFINITY,
                       is_inside(2) ? v.z : -INFINITY, is_inside(3) ? v.w : -INFINITY);
  }
  __device__ __forceinline__ int id(int group) const { return 4 * group - offset; }
  __device__ __forceinline__ int chunks() const { return (groups + 31) / 32; }
};

// Bits whose order as integers is that of the floats.
__device__ __forceinline__ uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float from_ordered(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}
// NaN if either is.
__device__ __forceinline__ float max_nan(float a, float b) {
  float d;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}

// From a logit to its place in the order and its weight.
struct Scale {
  float max;
  float temperature;
  float inverse;  // 0 where the temperature needs the general division

  __device__ Scale(float highest, float t) : max(highest), temperature(t) {
    inverse = t >= 0x1p-20f && t <= 0x1p20f ? __frcp_rn(t) : 0.0f;
  }
  // Two corrections of a quotient by the correctly rounded reciprocal round it correctly, as long
  // as no remainder underflows. Far below the best, where weights are 0, values do not matter.
  __device__ __forceinline__ float scaled(float logit) const {
    const float difference = fmaxf(__fsub_rn(logit, max), -1e30f);
    if (inverse == 0.0f || (difference > -0x1p-60f && difference < 0.0f)) {
      return __fdiv_rn(difference, temperature);
    }
    float quotient = __fmul_rn(difference, inverse);
    quotient = __fmaf_rn(__fmaf_rn(-quotient, temperature, difference), inverse, quotient);
    return __fmaf_rn(__fmaf_rn(-quotient, temperature, difference), inverse, quotient);
  }
  // Of a scaled logit: 0 for the best, the bits of infinity for what cannot be drawn.
  static __device__ __forceinline__ uint32_t order(float scaled) {
    return __float_as_uint(__fsub_rn(0.0f, scaled));
  }
};
inline constexpr uint32_t kOrderNever = 0x7f800000u;

// What a scan leaves: the highest logit, and in s.found every token whose logit is at least
// `threshold`, if they are `complete`.
struct ScanResult {
  float max;  // NaN if a logit is
  float threshold;
  int candidates;
  bool complete;
};

inline constexpr int kScanLoads = 8;  // 16-byte loads in flight a thread

// Of all threads' values at least `want` are as high as the float that is returned, which has 16
// significant bits; -infinity where that cannot be.
__device__ inline float threshold_for(float highest, int want) {
  const uint32_t key = ordered(highest) >> 16;
  uint32_t low = 0;
  for (int bit = 15; bit >= 0; --bit) {
    const uint32_t middle = low | (1u << bit);
    if (__syncthreads_count(key >= middle ? 1 : 0) >= want) low = middle;
  }
  // A step lower, so that a token at the boundary has some below it among the candidates.
  low -= low > 0 ? 1 : 0;
  return low <= ordered(-INFINITY) >> 16 ? -INFINITY : from_ordered(low << 16);
}

// Appends what of four tokens reaches the threshold. Ids before the row's first are -infinity, and
// the threshold may be that, too.
__device__ __forceinline__ void keep_found(SampleShared& s, uint32_t counter, const float4& v,
                                           float threshold, int id) {
  const float values[4] = {v.x, v.y, v.z, v.w};
  uint32_t hits = 0;
#pragma unroll
  for (int e = 0; e < 4; ++e) hits += values[e] >= threshold ? 1 : 0;
  uint32_t at;
  asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(at) : "r"(counter), "r"(hits) : "memory");
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (values[e] >= threshold) {
      if (at < kSampleFound) {
        s.found[at] = (uint64_t{__float_as_uint(values[e])} << 32) | static_cast<uint32_t>(id + e);
      }
      ++at;
    }
  }
}

// The loads of one round lie in eight parts of the row, so that the first round is a fair sample:
// the `want` highest of its threads' maxima give the threshold. More than `most` candidates are not
// complete. want = 0: the maximum alone.
__device__ inline ScanResult scan_candidates(SampleShared& s, const RowView& row, int want,
                                             int most) {
  const int tid = static_cast<int>(threadIdx.x);
  const int part = (row.groups + kScanLoads - 1) / kScanLoads;
  const auto group_of = [&](int i, int j) {
    const int group = j * part + i + tid;
    return i + tid < part && group < row.groups ? group : row.groups;
  };
  const auto highest_of = [](const float4& v) {
    return max_nan(max_nan(v.x, v.y), max_nan(v.z, v.w));
  };
  float4 v[kScanLoads];
#pragma unroll
  for (int j = 0; j < kScanLoads; ++j) v[j] = row.load(group_of(0, j));
  if (tid == 0) s.count = 0;
  float threshold = INFINITY;
  if (want > 0) {
    float highest = -INFINITY;
#pragma unroll
    for (int j = 0; j < kScanLoads; ++j) {
      v[j] = row.inside(v[j], group_of(0, j));
      highest = max_nan(highest, highest_of(v[j]));
    }
    threshold = threshold_for(highest, want);
  }
  const uint32_t counter = shared_address(&s.count);
  float max = -INFINITY;
  for (int i = 0; i < part; i += kSampleThreads) {
#pragma unroll
    for (int j = 0; j < kScanLoads; ++j) {
      const int group = group_of(i, j);
      const float4 values = row.inside(v[j], group);
      const float highest = highest_of(values);
      max = max_nan(max, highest);
      if (highest >= threshold && group < row.groups) {
        keep_found(s, counter, values, threshold, row.id(group));
      }
      v[j] = row.load(group_of(i + kSampleThreads, j));
    }
  }
  // Over the block.
#pragma unroll
  for (int step = 16; step > 0; step /= 2) max = max_nan(max, __shfl_xor_sync(~0u, max, step));
  if (tid % 32 == 0) s.sums[tid / 32] = __float_as_uint(max);
  __syncthreads();
  max = __uint_as_float(static_cast<uint32_t>(s.sums[0]));
  for (int w = 1; w < kSampleWarps; ++w) {
    max = max_nan(max, __uint_as_float(static_cast<uint32_t>(s.sums[w])));
  }
  const int count = s.count;
  __syncthreads();
  return {max, threshold, count, want > 0 && threshold > -INFINITY && count <= most};
}

// The lowest id among the highest logits; `max` is NaN if a logit is.
struct Highest {
  float max;
  int id;
};
__device__ inline Highest scan_highest(SampleShared& s, const RowView& row) {
  const int tid = static_cast<int>(threadIdx.x);
  float top = -INFINITY;
  float best = -INFINITY;
  int best_id = row.vocab_size;
  for (int first = tid; first < row.groups; first += kScanLoads * kSampleThreads) {
    float4 v[kScanLoads];
#pragma unroll
    for (int j = 0; j < kScanLoads; ++j) v[j] = row.load(first + j * kSampleThreads);
#pragma unroll
    for (int j = 0; j < kScanLoads; ++j) {
      const int group = first + j * kSampleThreads;
      const float4 values = row.inside(v[j], group);
      const float highest = max_nan(max_nan(values.x, values.y), max_nan(values.z, values.w));
      top = max_nan(top, highest);
      if (highest > best) {  // ids only rise
        best = highest;
        best_id = row.id(group) + (values.x == highest   ? 0
                                   : values.y == highest ? 1
                                   : values.z == highest ? 2
                                                         : 3);
      }
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) top = max_nan(top, __shfl_xor_sync(~0u, top, step));
  // Adding 0 makes one zero of the two.
  uint64_t key = (uint64_t{ordered(__fadd_rn(best, 0.0f))} << 32) | ~static_cast<uint32_t>(best_id);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    key = max(key, __shfl_xor_sync(~0u, key, step));
  }
  if (tid % 32 == 0) {
    s.sums[tid / 32] = key;
    s.chunk[tid / 32] = __float_as_uint(top);
  }
  __syncthreads();
  for (int w = 0; w < kSampleWarps; ++w) {
    key = max(key, s.sums[w]);
    top = max_nan(top, __uint_as_float(static_cast<uint32_t>(s.chunk[w])));
  }
  return {top, static_cast<int>(~static_cast<uint32_t>(key))};
}

// Calls token(group, values) for every group of the row, a chunk a warp; whole warps.
template <typename Token>
__device__ __forceinline__ void for_chunks(const RowView& row, const Token& token) {
  constexpr int kFlight = 4;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int chunks = row.chunks();
  for (int first = warp; first < chunks; first += kFlight * kSampleWarps) {
    float4 v[kFlight];
#pragma unroll
    for (int i = 0; i < kFlight; ++i) v[i] = row.load(32 * (first + i * kSampleWarps) + lane);
#pragma unroll
    for (int i = 0; i < kFlight; ++i) {
      const int chunk = first + i * kSampleWarps;
      if (chunk < chunks) token(chunk, row.inside(v[i], 32 * chunk + lane));
    }
  }
}

// s.chunk = the measures of the row's chunks, where measure(scaled, id) tells a token's; returns
// their sum.
template <typename Measure>
__device__ inline uint64_t measure_chunks(SampleShared& s, const RowView& row, const Scale& scale,
                                          const Measure& measure) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  __syncthreads();  // what s.chunk held has been read
  uint64_t total = 0;
  for_chunks(row, [&](int chunk, const float4& v) {
    const int id = row.id(32 * chunk + lane);
    uint64_t sum = measure(scale.scaled(v.x), id) + measure(scale.scaled(v.y), id + 1) +
                   measure(scale.scaled(v.z), id + 2) + measure(scale.scaled(v.w), id + 3);
    sum = warp_total(sum);
    if (lane == 0) {
      s.chunk[chunk] = sum;
      total += sum;
    }
  });
  return block_total(s, total);
}

// The token at which the measure, summed in id order, passes `rest`. measure_chunks has run with
// the same measure.
template <typename Measure>
__device__ inline int locate(SampleShared& s, const RowView& row, const Scale& scale, uint64_t rest,
                             const Measure& measure) {
  constexpr int kChunkBits = 12;
  const SearchResult chunk = search(
      s, row.chunks(), kChunkBits, rest + 1, [](int i) { return static_cast<uint64_t>(i); },
      [&](int i) { return s.chunk[i]; });
  const int index = chunk.found ? static_cast<int>(chunk.key) : row.chunks() - 1;
  uint64_t before = 0;
  for (int i = static_cast<int>(threadIdx.x); i < index; i += kSampleThreads) before += s.chunk[i];
  before = block_total(s, before);
  if (threadIdx.x < 32) {
    const int lane = static_cast<int>(threadIdx.x);
    const int group = 32 * index + lane;
    const float4 v = row.inside(row.load(group), group);
    const float values[4] = {v.x, v.y, v.z, v.w};
    uint64_t measures[4];
    uint64_t sum = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      measures[e] = measure(scale.scaled(values[e]), row.id(group) + e);
      sum += measures[e];
    }
    uint64_t end = sum;  // of the lane
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint64_t other = __shfl_up_sync(~0u, end, step);
      end += lane >= step ? other : 0;
    }
    uint64_t at = before + end - sum;
    if (at <= rest && rest < before + end) {
      int e = 0;
      while (e < 3 && rest >= at + measures[e]) at += measures[e++];
      s.result = static_cast<uint64_t>(row.id(group) + e);
    }
  }
  __syncthreads();
  return static_cast<int>(s.result);
}

// The packed key of the token at which the measure, summed best first, reaches `target`; kEveryKey
// if it never does. measure(scaled) is positive only for what can be drawn. Digit by digit of the
// order, then by id among equals.
template <typename Measure>
__device__ inline uint64_t row_boundary(SampleShared& s, const RowView& row, const Scale& scale,
                                        uint64_t target, const Measure& measure) {
  uint32_t prefix = 0;
  int shift = 31;
  for (const int bits : {11, 11, 9}) {
    shift -= bits;
    const uint32_t mask = (1u << bits) - 1;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kDigitBuckets; i += kSampleThreads) {
      s.digit.low[i] = 0;
      s.digit.high[i] = 0;
    }
    __syncthreads();
    for_chunks(row, [&](int, const float4& v) {
      for (const float logit : {v.x, v.y, v.z, v.w}) {
        const float scaled = scale.scaled(logit);
        const uint32_t order = Scale::order(scaled);
        if (uint64_t{order} >> (shift + bits) != prefix) continue;
        const uint64_t value = measure(scaled);
        if (value == 0) continue;
        const uint32_t digit = (order >> shift) & mask;
        const auto low = static_cast<uint32_t>(value);
        const uint32_t old = atomicAdd(&s.digit.low[digit], low);
        const uint32_t high = static_cast<uint32_t>(value >> 32) + (old + low < old ? 1 : 0);
        if (high != 0) atomicAdd(&s.digit.high[digit], high);
      }
    });
    __syncthreads();
    const auto bucket = [&](int i) { return (uint64_t{s.digit.high[i]} << 32) | s.digit.low[i]; };
    const SearchResult found =
        search(s, 1 << bits, bits, target, [](int i) { return static_cast<uint64_t>(i); }, bucket);
    if (!found.found) return kEveryKey;
    uint64_t before = 0;
    for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(found.key);
         i += kSampleThreads) {
      before += bucket(i);
    }
    target -= block_total(s, before);
    prefix = (prefix << bits) | static_cast<uint32_t>(found.key);
  }
  const auto equal = [&](float scaled, int) {
    return Scale::order(scaled) == prefix ? measure(scaled) : 0;
  };
  measure_chunks(s, row, scale, equal);
  return pack_key(prefix, locate(s, row, scale, target - 1, equal));
}

}  // namespace pelton::kernels::cuda
