#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include "sampling/row.h"
#include "sampling/test_support.h"

namespace pelton::sampling {
namespace {

using test::kMinusInfinity;

Result<SampledRow> sample(const SamplingParams& params, std::vector<float> row, uint64_t seed = 1,
                          const std::vector<int32_t>& output = {}) {
  static SamplerScratch scratch;
  const Sampler sampler(params, {});
  SamplerInput input;
  input.logits = row;
  input.output = output;
  input.seed = seed;
  return sampler.sample(input, scratch);
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  SamplingParams params;
  params.temperature = 0.0f;
  EXPECT_EQ(sample(params, {1.0f, 3.0f, 3.0f, 2.0f})->token, 1);
  EXPECT_EQ(sample(params, std::vector<float>(100, 0.5f))->token, 0);
}

TEST(Sampler, ExtremesStayFiniteAndTendToGreedy) {
  Random random(5);
  for (float spread : {1.0f, 30.0f, 1e30f}) {
    auto row = test::random_row(random, 333, spread);
    row[17] = kMinusInfinity;
    const int32_t best = argmax(row);
    for (float temperature : {0.0f, 1e-45f, 1e-9f, 1e-4f, 1e-2f, 1.0f, 2.0f, 100.0f, 1e30f}) {
      for (float top_p : {1e-45f, 1e-9f, 1e-4f, 0.5f, 1.0f}) {
        SamplingParams params;
        params.temperature = temperature;
        params.top_p = top_p;
        params.logprobs = 5;
        for (auto mode :
             {SamplingParams::LogprobsMode::kRaw, SamplingParams::LogprobsMode::kProcessed}) {
          params.logprobs_mode = mode;
          const auto got = sample(params, row);
          ASSERT_TRUE(got.ok());
          EXPECT_NE(got->token, 17);
          if (temperature <= 1e-4f || top_p <= 1e-4f) {
            EXPECT_EQ(got->token, best);
          }
          EXPECT_TRUE(std::isfinite(got->logprobs.chosen.logprob));
          for (const TokenLogprob& top : got->logprobs.top) {
            EXPECT_TRUE(std::isfinite(top.logprob));
          }
        }
      }
    }
  }
}

TEST(Sampler, SeedsDecide) {
  const std::vector<float> row(1000, 0.0f);
  const SamplingParams params;
  std::vector<int32_t> first, second, third;
  for (int32_t step = 0; step < 8; ++step) {
    const std::vector<int32_t> output(static_cast<size_t>(step), 0);
    first.push_back(sample(params, row, 1, output)->token);
    second.push_back(sample(params, row, 1, output)->token);
    third.push_back(sample(params, row, 2, output)->token);
  }
  EXPECT_EQ(first, second);
  EXPECT_NE(first, third);
  EXPECT_GT(std::set<int32_t>(first.begin(), first.end()).size(), 4u);
}

TEST(Sampler, CompletionsDifferAndResumedPromptsAgree) {
  SamplerScratch scratch;
  const Sampler sampler({}, {});
  const std::vector<int32_t> text = {5, 6, 7, 8};
  const auto draw_at = [&](size_t prompt, uint32_t sequence) {
    std::vector<float> row(4096, 0.0f);
    SamplerInput input;
    input.logits = row;
    input.prompt = std::span(text).first(prompt);
    input.output = std::span(text).subspan(prompt);
    input.seed = 9;
    input.sequence_index = sequence;
    return sampler.sample(input, scratch)->token;
  };
  EXPECT_EQ(draw_at(1, 0), draw_at(3, 0));
  EXPECT_NE(draw_at(1, 0), draw_at(1, 1));
}

TEST(Sampler, RowsWithoutADistributionFailAlone) {
  for (float flaw : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (float temperature : {0.0f, 1.0f}) {
      SamplingParams params;
      params.temperature = temperature;
      std::vector<float> row(100, 1.0f);
      row[63] = flaw;
      EXPECT_EQ(sample(params, row).status().code(), StatusCode::kInternal);
      EXPECT_TRUE(sample(params, std::vector<float>(100, 1.0f)).ok());
    }
  }
  EXPECT_FALSE(sample({}, std::vector<float>(10, kMinusInfinity)).ok());
}

TEST(Sampler, SuppressedTokensAreNeverChosen) {
  SamplerScratch scratch;
  const std::vector<int32_t> suppressed = {0, 2, 3};
  for (float temperature : {0.0f, 100.0f}) {
    SamplingParams params;
    params.temperature = temperature;
    const Sampler sampler(params, {});
    for (uint64_t seed = 0; seed < 50; ++seed) {
      std::vector<float> row = {9.0f, 1.0f, 9.0f, 9.0f};
      SamplerInput input;
      input.logits = row;
      input.seed = seed;
      input.suppressed = suppressed;
      EXPECT_EQ(sampler.sample(input, scratch)->token, 1);
    }
  }
  std::vector<float> row = {9.0f, kMinusInfinity};
  SamplerInput input;
  input.logits = row;
  input.suppressed = suppressed;
  EXPECT_FALSE(Sampler({}, {}).sample(input, scratch).ok());
}

TEST(Sampler, RawLogprobsIgnoreTheStages) {
  SamplingParams params;
  params.temperature = 0.1f;
  params.top_k = 1;
  params.logit_bias = {{0, 50.0f}};
  params.logprobs = 3;
  const std::vector<float> row = {std::log(0.1f), std::log(0.2f), std::log(0.7f)};
  const auto got = sample(params, row);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->token, 0);
  EXPECT_NEAR(got->logprobs.chosen.logprob, std::log(0.1f), 1e-5f);
  ASSERT_EQ(got->logprobs.top.size(), 3u);
  EXPECT_EQ(got->logprobs.top[0].token, 2);
  EXPECT_NEAR(got->logprobs.top[0].logprob, std::log(0.7f), 1e-5f);
  EXPECT_EQ(got->logprobs.top[2].token, 0);
}

TEST(Sampler, ProcessedLogprobsAreThoseOfTheDraw) {
  SamplingParams params;
  params.top_k = 2;
  params.logprobs = 5;
  params.logprobs_mode = SamplingParams::LogprobsMode::kProcessed;
  const std::vector<float> row = {std::log(0.1f), std::log(0.3f), std::log(0.6f)};
  const auto got = sample(params, row);
  ASSERT_TRUE(got.ok());
  ASSERT_EQ(got->logprobs.top.size(), 2u);
  EXPECT_EQ(got->logprobs.top[0].token, 2);
  EXPECT_NEAR(got->logprobs.top[0].logprob, std::log(2.0f / 3.0f), 1e-5f);
  EXPECT_NEAR(got->logprobs.top[1].logprob, std::log(1.0f / 3.0f), 1e-5f);
}

TEST(Sampler, MaskedTokensHaveAFiniteLogprob) {
  const std::vector<float> row = {1.0f, kMinusInfinity, 0.0f, -1e30f};
  const TokenLogprobs got = row_logprobs(row, 1, 10);
  EXPECT_EQ(got.chosen.logprob, kLogprobFloor);
  ASSERT_EQ(got.top.size(), 3u);
  EXPECT_EQ(got.top[2].logprob, kLogprobFloor);
  const std::vector<float> bad = {std::nanf(""), 1.0f};
  EXPECT_EQ(row_logprobs(bad, 0, 1).chosen.logprob, kLogprobFloor);
  EXPECT_EQ(row_logprobs(row, 99, 0).chosen.logprob, kLogprobFloor);
}

TEST(Sampler, LogprobsOfALargeRowSumToOne) {
  Random random(8);
  const auto row = test::random_row(random, 50'000, 2.0f);
  const TokenLogprobs got = row_logprobs(row, 3, 50'000);
  ASSERT_EQ(got.top.size(), row.size());
  double sum = 0.0;
  for (const TokenLogprob& top : got.top) sum += std::exp(static_cast<double>(top.logprob));
  EXPECT_NEAR(sum, 1.0, 1e-5);
  EXPECT_TRUE(std::ranges::is_sorted(got.top, std::greater{}, &TokenLogprob::logprob));
}

TEST(Sampler, ScratchLeavesNoTrace) {
  Random random(4);
  SamplingParams busy;
  busy.repetition_penalty = 1.2f;
  busy.frequency_penalty = 0.5f;
  busy.dry_multiplier = 0.8f;
  busy.typical_p = 0.9f;
  busy.top_p = 0.9f;
  SamplerScratch shared(500, 64);
  const std::vector<int32_t> output = {1, 2, 3, 1, 2, 3, 1, 2};
  for (int i = 0; i < 50; ++i) {
    const auto row = test::random_row(random, 100 + random.below(400), 2.0f);
    const auto run = [&](SamplerScratch& scratch) {
      auto copy = row;
      SamplerInput input;
      input.logits = copy;
      input.output = output;
      input.seed = static_cast<uint64_t>(i);
      return Sampler(busy, {}).sample(input, scratch)->token;
    };
    SamplerScratch fresh;
    EXPECT_EQ(run(shared), run(fresh));
  }
}

TEST(Sampler, ScratchIsReservedOnce) {
  Random random(4);
  SamplerScratch scratch(1000, 64);
  const auto* candidates = scratch.candidates.data();
  const auto* selection = scratch.selection.data();
  SamplingParams params;
  params.top_p = 0.7f;
  params.top_k = 900;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto row = test::random_row(random, 1000, 0.1f);
    SamplerInput input;
    input.logits = row;
    input.seed = seed;
    ASSERT_TRUE(Sampler(params, {}).sample(input, scratch).ok());
  }
  EXPECT_EQ(scratch.candidates.data(), candidates);
  EXPECT_EQ(scratch.selection.data(), selection);
  EXPECT_GE(SamplerScratch::bytes(1000, 64),
            static_cast<int64_t>(scratch.candidates.capacity() * sizeof(Candidate)));
}

}  // namespace
}  // namespace pelton::sampling
