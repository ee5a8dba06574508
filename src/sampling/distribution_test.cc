// Frequencies of drawn tokens against closed-form probabilities, with fixed seeds.
#include <gtest/gtest.h>

#include <map>

#include "sampling/sampler.h"
#include "sampling/test_support.h"

namespace pelton::sampling {
namespace {

constexpr int kDraws = 20'000;

// Quantile 0.9999 of the chi-square distribution (Wilson and Hilferty's approximation).
double critical(double degrees) {
  const double a = 2.0 / (9.0 * degrees);
  return degrees * std::pow(1.0 - a + 3.719 * std::sqrt(a), 3.0);
}

std::map<int32_t, int> frequencies(const SamplingParams& params, const std::vector<float>& logits,
                                   uint64_t seed) {
  const Sampler sampler(params, {});
  SamplerScratch scratch;
  std::map<int32_t, int> counts;
  std::vector<float> row;
  for (int i = 0; i < kDraws; ++i) {
    row = logits;
    SamplerInput input;
    input.logits = row;
    input.seed = seed;
    input.sequence_index = static_cast<uint32_t>(i);
    ++counts[sampler.sample(input, scratch)->token];
  }
  return counts;
}

// Cells that expect fewer than 5 draws are pooled; tokens of probability 0 must not appear.
void expect_distribution(const std::map<int32_t, int>& counts,
                         const std::map<int32_t, double>& expected) {
  double statistic = 0.0;
  double cells = 0.0;
  double pooled_expected = 0.0;
  double pooled_seen = 0.0;
  int seen = 0;
  const auto add = [&](double observed, double mean) {
    statistic += (observed - mean) * (observed - mean) / mean;
    cells += 1.0;
  };
  for (const auto& [token, p] : expected) {
    const auto found = counts.find(token);
    const int observed = found == counts.end() ? 0 : found->second;
    seen += observed;
    if (p * kDraws < 5.0) {
      pooled_expected += p * kDraws;
      pooled_seen += observed;
    } else {
      add(observed, p * kDraws);
    }
  }
  if (pooled_expected >= 5.0) add(pooled_seen, pooled_expected);
  EXPECT_EQ(seen, kDraws) << "a token of probability 0 was drawn";
  if (cells > 1.0) {
    EXPECT_LT(statistic, critical(cells - 1.0));
  }
}

void expect_slow_distribution(const SamplingParams& params, const std::vector<float>& logits,
                              uint64_t seed) {
  std::map<int32_t, double> expected;
  for (const auto& x : test::slow_filters(logits, params)) expected[x.token] = x.p;
  expect_distribution(frequencies(params, logits, seed), expected);
}

std::vector<float> logits_of(std::initializer_list<double> probabilities) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

TEST(Distribution, Softmax) {
  expect_distribution(frequencies({}, logits_of({0.1, 0.2, 0.3, 0.4}), 1),
                      {{0, 0.1}, {1, 0.2}, {2, 0.3}, {3, 0.4}});
}

// Temperature 1/2 squares the probabilities.
TEST(Distribution, Temperature) {
  SamplingParams params;
  params.temperature = 0.5f;
  expect_distribution(frequencies(params, logits_of({0.1, 0.2, 0.3, 0.4}), 2),
                      {{0, 1.0 / 30}, {1, 4.0 / 30}, {2, 9.0 / 30}, {3, 16.0 / 30}});
}

TEST(Distribution, TopK) {
  SamplingParams params;
  params.top_k = 2;
  expect_distribution(frequencies(params, logits_of({0.3, 0.2, 0.1, 0.4}), 3),
                      {{0, 3.0 / 7}, {3, 4.0 / 7}});
}

TEST(Distribution, TopP) {
  SamplingParams params;
  params.top_p = 0.65f;
  expect_distribution(frequencies(params, logits_of({0.1, 0.2, 0.3, 0.4}), 4),
                      {{2, 3.0 / 7}, {3, 4.0 / 7}});
}

TEST(Distribution, MinP) {
  SamplingParams params;
  params.min_p = 0.4f;
  expect_distribution(frequencies(params, logits_of({0.1, 0.2, 0.3, 0.4}), 5),
                      {{1, 2.0 / 9}, {2, 3.0 / 9}, {3, 4.0 / 9}});
}

// Entropy of {0.5, 0.25, 0.125, 0.125} is 1.75 bits: 0.25 (2 bits) is nearest, then 0.5.
TEST(Distribution, Typical) {
  SamplingParams params;
  params.typical_p = 0.5f;
  expect_distribution(frequencies(params, logits_of({0.5, 0.25, 0.125, 0.125}), 6),
                      {{0, 2.0 / 3}, {1, 1.0 / 3}});
  params.typical_p = 0.2f;
  expect_distribution(frequencies(params, logits_of({0.5, 0.25, 0.125, 0.125}), 6), {{1, 1.0}});
}

TEST(Distribution, LogitBias) {
  SamplingParams params;
  params.logit_bias = {{0, std::log(2.0f)}, {1, -100.0f}};
  expect_distribution(frequencies(params, logits_of({0.2, 0.2, 0.6}), 7), {{0, 0.4}, {2, 0.6}});
}

TEST(Distribution, Combinations) {
  Random random(21);
  uint64_t seed = 100;
  for (float temperature : {0.7f, 1.0f, 1.6f}) {
    for (int filters = 0; filters < 4; ++filters) {
      const auto logits = test::random_row(random, 60, 2.0f);
      SamplingParams params;
      params.temperature = temperature;
      params.top_k = filters % 2 == 0 ? 25 : 0;
      params.top_p = filters == 1 ? 1.0f : 0.9f;
      params.typical_p = filters == 3 ? 0.9f : 1.0f;
      params.min_p = filters >= 2 ? 0.03f : 0.0f;
      expect_slow_distribution(params, logits, seed++);
    }
  }
}

// The whole vocabulary, no filter: the fixed-point weights must not show.
TEST(Distribution, ManyTokens) {
  Random random(22);
  expect_slow_distribution({}, test::random_row(random, 1500, 1.5f), 200);
}

}  // namespace
}  // namespace pelton::sampling
