// Helpers of the sampling tests: goldens and a slow, obvious pipeline to compare with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "pelton/sampling_params.h"
#include "sampling/stages.h"
#include "tests/support/source_root.h"

namespace pelton::sampling::test {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

inline nlohmann::json golden(const std::string& name) {
  const std::string path = pelton::source_root().string() + "/tests/golden/sampling/" + name;
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return nlohmann::json::parse(file);
}

inline std::vector<float> random_row(Random& random, size_t size, float spread) {
  std::vector<float> row(size);
  for (float& value : row) value = random.normal() * spread;
  return row;
}

// From temperature to min-p, as the sampler runs them; candidates ascending by token.
inline std::vector<Candidate> run_filters(std::vector<float> logits, const SamplingParams& params,
                                          SamplerScratch& scratch) {
  apply_temperature(logits, params.temperature);
  select_candidates(logits, params.top_k, scratch);
  if (params.typical_p < 1.0f) apply_typical(scratch, params.typical_p);
  if (params.top_p < 1.0f) apply_top_p(scratch, params.top_p);
  if (params.min_p > 0.0f) apply_min_p(scratch, params.min_p);
  return scratch.candidates;
}

struct Probability {
  int32_t token = 0;
  double p = 0.0;  // unnormalised between the stages
  double scaled = 0.0;
};

// Sorts everything, in double precision; ascending by token and normalised on return.
inline std::vector<Probability> slow_filters(const std::vector<float>& logits,
                                             const SamplingParams& params) {
  const float max = *std::ranges::max_element(logits);
  std::vector<Probability> all;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double scaled = static_cast<double>((logits[i] - max) / params.temperature);
    if (scaled == -std::numeric_limits<double>::infinity()) continue;
    all.push_back({static_cast<int32_t>(i), std::exp(scaled), scaled});
  }
  const auto by = [&](auto key) {
    std::ranges::sort(all, [&](const Probability& a, const Probability& b) {
      return key(a) != key(b) ? key(a) < key(b) : a.token < b.token;
    });
  };
  const auto total = [&] {
    return std::accumulate(all.begin(), all.end(), 0.0,
                           [](double sum, const Probability& x) { return sum + x.p; });
  };
  const auto keep_prefix = [&](double share) {
    const double target = share * total();
    double sum = 0.0;
    size_t kept = 0;
    while (kept < all.size() && (kept == 0 || sum < target)) sum += all[kept++].p;
    all.resize(kept);
  };
  by([](const Probability& x) { return -x.scaled; });
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < all.size()) {
    all.resize(static_cast<size_t>(params.top_k));
  }
  if (params.typical_p < 1.0f) {
    const double sum = total();
    double entropy = 0.0;
    for (const Probability& x : all) {
      if (x.p > 0.0) entropy -= x.p / sum * (x.scaled - std::log(sum));
    }
    by([&](const Probability& x) {
      return static_cast<float>(std::abs(-(x.scaled - std::log(sum)) - entropy));
    });
    keep_prefix(static_cast<double>(params.typical_p));
  }
  if (params.top_p < 1.0f) {
    by([](const Probability& x) { return -x.scaled; });
    keep_prefix(static_cast<double>(params.top_p));
  }
  double best = 0.0;
  for (const Probability& x : all) best = std::max(best, x.p);
  std::erase_if(
      all, [&](const Probability& x) { return x.p < static_cast<double>(params.min_p) * best; });
  by([](const Probability& x) { return x.token; });
  const double sum = total();
  for (Probability& x : all) x.p /= sum;
  return all;
}

}  // namespace pelton::sampling::test
