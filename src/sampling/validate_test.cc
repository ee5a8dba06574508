#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "pelton/request.h"
#include "pelton/sampling_params.h"

namespace pelton {
namespace {

constexpr int32_t kVocab = 1000;
constexpr int32_t kMaxLen = 4096;

struct Case {
  const char* field;
  std::function<void(SamplingParams&)> change;
};

TEST(Validate, DefaultsAndLimitsPass) {
  EXPECT_TRUE(validate({}, kVocab, kMaxLen).ok());
  const std::vector<std::function<void(SamplingParams&)>> good = {
      [](auto& p) { p.max_tokens = 0; },
      [](auto& p) { p.temperature = 0.0f; },
      [](auto& p) { p.temperature = 1e-9f; },
      [](auto& p) { p.temperature = 100.0f; },
      [](auto& p) { p.top_k = -1; },
      [](auto& p) { p.top_k = 1'000'000; },
      [](auto& p) { p.top_p = 1e-9f; },
      [](auto& p) { p.min_p = 1.0f; },
      [](auto& p) { p.logit_bias = {{0, 100.0f}, {kVocab - 1, -100.0f}}; },
      [](auto& p) { p.stop_token_ids = {0, kVocab - 1}; },
      [](auto& p) { p.seed = std::numeric_limits<uint64_t>::max(); },
      [](auto& p) { p.n = 128; },
      [](auto& p) {
        p.num_beams = 4;
        p.n = 4;
        p.length_penalty = -1.0f;
      },
  };
  for (size_t i = 0; i < good.size(); ++i) {
    SamplingParams params;
    good[i](params);
    EXPECT_TRUE(validate(params, kVocab, kMaxLen).ok())
        << i << ": " << validate(params, kVocab, kMaxLen).to_string();
  }
}

TEST(Validate, NamesTheField) {
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<Case> cases = {
      {"max_tokens", [](auto& p) { p.max_tokens = -1; }},
      {"max_tokens", [](auto& p) { p.max_tokens = std::numeric_limits<int32_t>::min(); }},
      {"min_tokens", [](auto& p) { p.min_tokens = -1; }},
      {"min_tokens", [](auto& p) { p.min_tokens = kMaxLen + 1; }},
      {"min_tokens", [](auto& p) { p.min_tokens = 9, p.max_tokens = 8; }},
      {"temperature", [](auto& p) { p.temperature = -0.1f; }},
      {"temperature", [=](auto& p) { p.temperature = nan; }},
      {"temperature", [=](auto& p) { p.temperature = infinity; }},
      {"top_k", [](auto& p) { p.top_k = -2; }},
      {"top_p", [](auto& p) { p.top_p = 0.0f; }},
      {"top_p", [](auto& p) { p.top_p = 1.01f; }},
      {"top_p", [=](auto& p) { p.top_p = nan; }},
      {"min_p", [](auto& p) { p.min_p = -0.01f; }},
      {"min_p", [=](auto& p) { p.min_p = nan; }},
      {"typical_p", [](auto& p) { p.typical_p = 0.0f; }},
      {"repetition_penalty", [](auto& p) { p.repetition_penalty = 0.0f; }},
      {"repetition_penalty", [=](auto& p) { p.repetition_penalty = nan; }},
      {"repetition_penalty", [=](auto& p) { p.repetition_penalty = infinity; }},
      {"presence_penalty", [](auto& p) { p.presence_penalty = 2.5f; }},
      {"frequency_penalty", [=](auto& p) { p.frequency_penalty = nan; }},
      {"dry_multiplier", [](auto& p) { p.dry_multiplier = -1.0f; }},
      {"dry_base", [](auto& p) { p.dry_base = 0.5f; }},
      {"dry_allowed_length", [](auto& p) { p.dry_allowed_length = 0; }},
      {"dry_penalty_last_n", [](auto& p) { p.dry_penalty_last_n = -2; }},
      {"dry_sequence_breakers", [](auto& p) { p.dry_sequence_breakers = {""}; }},
      {"logit_bias", [](auto& p) { p.logit_bias = {{-1, 1.0f}}; }},
      {"logit_bias", [](auto& p) { p.logit_bias = {{kVocab, 1.0f}}; }},
      {"logit_bias", [](auto& p) { p.logit_bias = {{1'000'000'000, 1.0f}}; }},
      {"logit_bias", [=](auto& p) { p.logit_bias = {{1, nan}}; }},
      {"logit_bias", [](auto& p) { p.logit_bias = {{1, 101.0f}}; }},
      {"logit_bias", [](auto& p) { p.logit_bias.resize(1'000'000, {1, 0.0f}); }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids = {kVocab}; }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids = {kVocab + 17}; }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids = {-1}; }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids.resize(10'000, 1); }},
      {"stop", [](auto& p) { p.stop = {"a", ""}; }},
      {"stop", [](auto& p) { p.stop.resize(10'000, "x"); }},
      {"stop", [](auto& p) { p.stop = {std::string(1 << 20, 'x')}; }},
      {"n", [](auto& p) { p.n = 0; }},
      {"n", [](auto& p) { p.n = 1'000'000; }},
      {"logprobs", [](auto& p) { p.logprobs = -2; }},
      {"logprobs", [](auto& p) { p.logprobs = 1'000'000; }},
      {"prompt_logprobs", [](auto& p) { p.prompt_logprobs = 1'000'000; }},
      {"num_beams", [](auto& p) { p.num_beams = 0; }},
      {"num_beams", [](auto& p) { p.num_beams = 1000; }},
      {"num_beams", [](auto& p) { p.num_beams = 2, p.n = 3; }},
      {"length_penalty", [=](auto& p) { p.num_beams = 2, p.length_penalty = nan; }},
      {"temperature", [](auto& p) { p.num_beams = 2, p.temperature = 0.7f; }},
      {"logprobs", [](auto& p) { p.num_beams = 2, p.logprobs = 1; }},
      {"dry_multiplier", [](auto& p) { p.num_beams = 2, p.dry_multiplier = 0.8f; }},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SamplingParams params;
    cases[i].change(params);
    const Status status = validate(params, kVocab, kMaxLen);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << i << " " << cases[i].field;
    EXPECT_THAT(status.message(), testing::HasSubstr(cases[i].field)) << i;
  }
}

TEST(Validate, NamesTheTokenId) {
  SamplingParams params;
  params.logit_bias = {{1'000'000'000, 1.0f}};
  EXPECT_THAT(validate(params, kVocab, kMaxLen).message(), testing::HasSubstr("1000000000"));
}

TEST(FinishReason, Names) {
  EXPECT_STREQ(finish_reason_name(FinishReason::kNone), "");
  EXPECT_STREQ(finish_reason_name(FinishReason::kStop), "stop");
  EXPECT_STREQ(finish_reason_name(FinishReason::kLength), "length");
  EXPECT_STREQ(finish_reason_name(FinishReason::kCancelled), "cancelled");
  EXPECT_STREQ(finish_reason_name(FinishReason::kError), "error");
}

}  // namespace
}  // namespace pelton
