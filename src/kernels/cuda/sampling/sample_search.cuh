// Exact searches over integer measures: by a block over items in shared memory.
#pragma once

#include <cstdint>

namespace pelton::kernels::cuda {

inline constexpr int kSampleThreads = 512;
inline constexpr int kSampleWarps = kSampleThreads / 32;
inline constexpr int kSampleFound = 5120;  // candidates of a scan
inline constexpr int kSampleKept = 2048;   // of them, after top-k
// Ids of one warp's 16-byte loads.
inline constexpr int kSampleChunk = 128;
inline constexpr int kSampleBuckets = 2560;  // chunks of the largest row, with one for alignment
inline constexpr int kDigitBuckets = 2048;   // of a histogram

struct SampleShared {
  // As the scan finds them: the logit's bits over the id. Then packed keys.
  uint64_t found[kSampleFound];
  // What top-k leaves of them.
  uint64_t key[kSampleKept];
  uint64_t weight[kSampleKept];
  union {
    uint64_t chunk[kSampleBuckets + 1];  // measures of chunks of the row
    struct {
      uint32_t low[kDigitBuckets];
      uint32_t high[kDigitBuckets];
    } digit;  // measures by digit, in two halves so that additions are native
  };
  uint64_t sums[kSampleWarps];
  uint64_t result;
  int count;
};

// Order of the tokens, best first, as one number: bits of -scaled (never negative, so its order is
// that of the floats), then the id.
inline constexpr int kIdBits = 19;
inline constexpr uint64_t kEveryKey = ~uint64_t{0};
__device__ __forceinline__ uint64_t pack_key(uint32_t order, int id) {
  return (uint64_t{order} << kIdBits) | static_cast<uint32_t>(id);
}

// Sum over a warp, which fits; whole in every lane.
__device__ __forceinline__ uint64_t warp_total(uint64_t value) {
  constexpr uint32_t kMask = (1u << 20) - 1;
  const uint32_t low = __reduce_add_sync(~0u, static_cast<uint32_t>(value) & kMask);
  const uint32_t middle = __reduce_add_sync(~0u, static_cast<uint32_t>(value >> 20) & kMask);
  const uint32_t high = __reduce_add_sync(~0u, static_cast<uint32_t>(value >> 40));
  return (uint64_t{high} << 40) + (uint64_t{middle} << 20) + low;
}

// Sum over the block, in every thread; all must call it.
__device__ __forceinline__ uint64_t block_total(SampleShared& s, uint64_t value) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  value = warp_total(value);
  __syncthreads();  // the sums of a call before this one have been read
  if (lane == 0) s.sums[warp] = value;
  __syncthreads();
  return warp_total(lane < kSampleWarps ? s.sums[lane] : 0);
}

struct SearchResult {
  bool found;
  uint64_t key;
};

// The smallest key of `bits` bits such that the items with keys up to it measure at least `target`,
// which is positive. Sixteen ways at a time, one a warp. All threads must call it.
template <typename Key, typename Measure>
__device__ SearchResult search(SampleShared& s, int items, int bits, uint64_t target,
                               const Key& key, const Measure& measure) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint64_t low = 0;
  while (bits > 0) {
    const int step = bits % 4 == 0 ? 4 : bits % 4;
    bits -= step;
    const uint64_t end = low + (static_cast<uint64_t>(warp + 1) << bits);
    uint64_t sum = 0;
    if (warp < 1 << step) {
      for (int i = lane; i < items; i += 32) {
        if (key(i) < end) sum += measure(i);
      }
      sum = warp_total(sum);
    }
    __syncthreads();
    if (lane == 0) s.sums[warp] = warp < 1 << step ? sum : kEveryKey;
    __syncthreads();
    const bool below = lane < kSampleWarps && s.sums[lane] < target;
    const int digit = __popc(__ballot_sync(~0u, below));
    if (digit == 1 << step) return {false, 0};
    low += static_cast<uint64_t>(digit) << bits;
  }
  return {true, low};
}

// A key such that exactly `target` of the items (distinct keys below `end`) do not exceed it.
template <typename Key>
__device__ SearchResult search_count(SampleShared& s, int items, uint64_t end, uint32_t target,
                                     const Key& key) {
  uint64_t low = 0;
  uint64_t high = end;  // the answer lies in [low, high)
  const auto count_to = [&](uint64_t pivot) {
    uint32_t count = 0;
    for (int i = static_cast<int>(threadIdx.x); i < items; i += kSampleThreads) {
      count += key(i) <= pivot ? 1 : 0;
    }
    if (items <= kSampleThreads) {
      return static_cast<uint32_t>(__syncthreads_count(static_cast<int>(count)));
    }
    return static_cast<uint32_t>(block_total(s, count));
  };
  if (end == 0 || count_to(end - 1) < target) return {false, 0};
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    const uint32_t count = count_to(middle);
    if (count == target) return {true, middle};
    if (count < target) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return {true, low};
}

}  // namespace pelton::kernels::cuda
