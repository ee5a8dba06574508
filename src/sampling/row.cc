#include "sampling/row.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace pelton::sampling {
namespace {

// Wide enough that compilers vectorise the loop over lanes instead of unrolling it.
constexpr size_t kLanes = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Below this e^x is under 2^-125 and taken as 0.
constexpr float kExpFloor = -87.0f;

// Round to nearest by adding and removing 1.5 * 2^23, then a degree-6 polynomial on
// [-ln2/2, ln2/2] with ln2 in two parts.
inline float exp_one(float x) {
  constexpr float kRound = 12582912.0f;
  const float bounded = x > kExpFloor ? x : kExpFloor;
  const float n = (bounded * 1.44269504088896341f + kRound) - kRound;
  const float r = (bounded - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float y = p * (r * r) + r + 1.0f;
  const int32_t power = (static_cast<int32_t>(n) + 127) << 23;
  const float value = y * std::bit_cast<float>(power);
  return x < kExpFloor ? 0.0f : value;
}

constexpr size_t kWeightBlock = 128;

// Through a signed integer: that conversion is one instruction, and values stay below 2^45.
uint64_t fixed_point(float value) {
  return static_cast<uint64_t>(static_cast<int64_t>(value * kWeightOne));
}

}  // namespace

RowScan scan_row(std::span<const float> logits) {
  std::array<float, kLanes> best;
  best.fill(-kInfinity);
  std::array<int32_t, kLanes> nans{};
  const size_t whole = logits.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    const float* x = &logits[i];
    for (size_t j = 0; j < kLanes; ++j) best[j] = x[j] > best[j] ? x[j] : best[j];
    for (size_t j = 0; j < kLanes; ++j) nans[j] |= x[j] != x[j] ? 1 : 0;
  }
  float max = -kInfinity;
  int32_t nan = 0;
  for (size_t j = 0; j < kLanes; ++j) {
    max = std::max(max, best[j]);
    nan |= nans[j];
  }
  for (size_t i = whole; i < logits.size(); ++i) {
    max = std::max(max, logits[i]);
    nan |= std::isnan(logits[i]) ? 1 : 0;
  }
  return {max, nan == 0 && std::isfinite(max)};
}

int32_t argmax(std::span<const float> logits) {
  const float max = scan_row(logits).max;
  return static_cast<int32_t>(std::ranges::find(logits, max) - logits.begin());
}

void exp_nonpositive(std::span<float> values) {
  for (float& value : values) value = exp_one(value);
}

double log_sum_exp(std::span<const float> logits, float max) {
  constexpr size_t kBlock = 256;
  std::array<float, kBlock> block;
  std::array<double, 4> sums{};
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, logits.size() - begin);
    for (size_t i = 0; i < count; ++i) block[i] = exp_one(logits[begin + i] - max);
    std::fill(block.begin() + static_cast<std::ptrdiff_t>(count), block.end(), 0.0f);
    for (size_t i = 0; i < kBlock; i += 4) {
      for (size_t j = 0; j < 4; ++j) sums[j] += static_cast<double>(block[i + j]);
    }
  }
  return std::log((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

void set_weights(std::span<Candidate> candidates) {
  for (size_t begin = 0; begin < candidates.size(); begin += kWeightBlock) {
    const std::span<Candidate> part =
        candidates.subspan(begin, std::min(kWeightBlock, candidates.size() - begin));
    std::array<float, kWeightBlock> block;
    std::ranges::transform(part, block.begin(), &Candidate::logit);
    exp_nonpositive(std::span(block).first(part.size()));
    for (size_t i = 0; i < part.size(); ++i) part[i].weight = fixed_point(block[i]);
  }
}

void select_weighty(std::span<const float> logits, std::vector<Candidate>& out) {
  out.clear();
  for (size_t begin = 0; begin < logits.size(); begin += kWeightBlock) {
    const std::span<const float> part =
        logits.subspan(begin, std::min(kWeightBlock, logits.size() - begin));
    std::array<float, kWeightBlock> block;
    std::ranges::copy(part, block.begin());
    exp_nonpositive(std::span(block).first(part.size()));
    for (size_t i = 0; i < part.size(); ++i) {
      const uint64_t weight = fixed_point(block[i]);
      if (weight > 0) {
        out.push_back({part[i], static_cast<int32_t>(begin + i), weight});
      }
    }
  }
}

uint64_t total_weight(std::span<const Candidate> candidates) {
  uint64_t total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

}  // namespace pelton::sampling
