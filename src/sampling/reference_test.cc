// The CPU pipeline against the scalar reference that device kernels are held against.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/ref/sampling.h"
#include "kernels/ref/sampling_cases.h"
#include "sampling/sampler.h"

namespace pelton::sampling {
namespace {

using kernels::SampleState;
using kernels::ref::kSamplingCases;
using kernels::ref::sample_rows;
using kernels::ref::SamplingCase;
using kernels::ref::SamplingData;

kernels::SampleParams params_of(SamplingData& data, std::vector<float>& logits, int32_t& token,
                                SampleState& state) {
  kernels::SampleParams p;
  p.logits = logits.data();
  p.logits_stride = static_cast<int64_t>(logits.size());
  p.rows = 1;
  p.vocab_size = static_cast<int32_t>(logits.size());
  p.row = &data.row;
  p.tokens = &token;
  p.states = &state;
  return p;
}

int32_t pipeline_token(const SamplingCase& c, SamplingData& data, SamplerScratch& scratch) {
  SamplingParams params;
  params.temperature = c.temperature;
  params.top_k = c.top_k;
  params.top_p = c.top_p;
  params.min_p = c.min_p;
  params.repetition_penalty = c.repetition;
  params.presence_penalty = c.presence;
  params.frequency_penalty = c.frequency;
  for (const kernels::TokenBias& b : data.biases) params.logit_bias.emplace_back(b.token, b.bias);
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;
  for (const kernels::TokenCount& count : data.history) {
    if (count.outputs == 0) prompt.push_back(count.token);
    for (int32_t i = 0; i < count.outputs; ++i) output.push_back(count.token);
  }
  if (c.history > 0) output.push_back(data.newest);
  SamplerInput input;
  input.logits = data.logits;
  input.prompt = prompt;
  input.output = output;
  input.seed = data.row.seed;
  input.sequence_index = data.row.sequence;
  input.suppressed = data.suppressed;
  const Result<SampledRow> row = Sampler(params, {}).sample(input, scratch);
  return row.ok() ? row.value().token : -1;
}

TEST(SamplingReference, PipelineChoosesTheSameTokens) {
  SamplerScratch scratch;
  for (const SamplingCase& c : kSamplingCases) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      SamplingData data;
      make_sampling_data(c, seed, data);
      std::vector<float> logits = data.logits;
      int32_t expected = -1;
      SampleState state = SampleState::kBadLogits;
      sample_rows(params_of(data, logits, expected, state));
      EXPECT_EQ(state, SampleState::kSampled) << c.name;
      EXPECT_EQ(pipeline_token(c, data, scratch), expected) << c.name << ", seed " << seed;
    }
  }
}

TEST(SamplingReference, NamesRowsWithoutDistribution) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<float>> rows = {
      {0.0f, NAN, 1.0f}, {0.0f, kInfinity, 1.0f}, {-kInfinity, -kInfinity, -kInfinity}};
  for (std::vector<float> logits : rows) {
    SamplingData data;
    int32_t token = -1;
    SampleState state = SampleState::kSampled;
    sample_rows(params_of(data, logits, token, state));
    EXPECT_EQ(state, SampleState::kBadLogits);
    EXPECT_EQ(token, 0);
  }
  SamplingData data;
  std::vector<float> logits = {1.0f, -kInfinity};
  data.suppressed = {0};
  data.row.suppressed = data.suppressed.data();
  data.row.num_suppressed = 1;
  int32_t token = -1;
  SampleState state = SampleState::kSampled;
  sample_rows(params_of(data, logits, token, state));
  EXPECT_EQ(state, SampleState::kNothingLeft);
}

}  // namespace
}  // namespace pelton::sampling
