#include "sampling/stages.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

#include "sampling/mass.h"
#include "sampling/row.h"
#include "sampling/test_support.h"

namespace pelton::sampling {
namespace {

using test::kMinusInfinity;

std::vector<int32_t> tokens_of(const std::vector<Candidate>& candidates) {
  std::vector<int32_t> tokens;
  for (const Candidate& candidate : candidates) tokens.push_back(candidate.token);
  return tokens;
}

TEST(Goldens, RepetitionPenalty) {
  int compared = 0;
  const auto file = test::golden("stages.json");
  for (const auto& item : file["cases"]) {
    const auto logits = item["logits"].get<std::vector<float>>();
    const auto history = item["history"].get<std::vector<int32_t>>();
    SamplerScratch scratch;
    for (const auto& run : item["repetition"]) {
      const auto expected = run["logits"].get<std::vector<float>>();
      for (size_t cut : {size_t{0}, history.size() / 2, history.size()}) {
        auto row = logits;
        const auto all = std::span<const int32_t>(history);
        apply_penalties(row, {all.first(cut), all.subspan(cut)}, {run["penalty"].get<float>()},
                        scratch);
        for (size_t i = 0; i < row.size(); ++i) ASSERT_FLOAT_EQ(row[i], expected[i]);
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 4 * 3 * 3);
}

TEST(Goldens, FiltersKeepTheSameTokens) {
  int compared = 0;
  const auto file = test::golden("stages.json");
  for (const auto& item : file["cases"]) {
    const auto logits = item["logits"].get<std::vector<float>>();
    SamplerScratch scratch;
    for (const auto& run : item["filters"]) {
      SamplingParams params;
      params.temperature = run["temperature"];
      params.top_k = run["top_k"];
      params.typical_p = run["typical_p"];
      params.top_p = run["top_p"];
      params.min_p = run["min_p"];
      const auto kept = test::run_filters(logits, params, scratch);
      const auto logprobs = run["logprobs"].get<std::vector<double>>();
      ASSERT_EQ(tokens_of(kept), run["kept"].get<std::vector<int32_t>>()) << run;
      const auto total = static_cast<double>(total_weight(kept));
      for (size_t i = 0; i < kept.size(); ++i) {
        if (logprobs[i] < -15.0) continue;  // fixed point: absolute error 2^-44
        ASSERT_NEAR(std::log(static_cast<double>(kept[i].weight) / total), logprobs[i], 1e-5);
      }
      ++compared;
    }
  }
  EXPECT_EQ(compared, 4 * 30);
}

TEST(Exp, WithinTwoUnitsInTheLastPlace) {
  for (float x = 0.0f; x > -87.0f; x -= 0.00137f) {
    float y[1] = {x};
    exp_nonpositive(y);
    const auto exact = static_cast<float>(std::exp(static_cast<double>(x)));
    ASSERT_NEAR(y[0], exact, 2.0f * (std::nextafter(exact, 1.0f) - exact)) << x;
  }
  float edges[] = {0.0f, -87.5f, -1e30f, kMinusInfinity};
  exp_nonpositive(edges);
  EXPECT_EQ(edges[0], 1.0f);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(edges[i], 0.0f);
}

TEST(Row, ScanFindsEveryFlaw) {
  for (size_t size : {1u, 15u, 16u, 17u, 100u}) {
    for (size_t at = 0; at < size; ++at) {
      std::vector<float> row(size, -1.0f);
      row[at] = 3.0f;
      EXPECT_TRUE(scan_row(row).has_distribution);
      EXPECT_EQ(argmax(row), static_cast<int32_t>(at));
      for (float flaw : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
        row[at] = flaw;
        EXPECT_FALSE(scan_row(row).has_distribution);
      }
    }
    EXPECT_FALSE(scan_row(std::vector<float>(size, kMinusInfinity)).has_distribution);
    EXPECT_EQ(argmax(std::vector<float>(size, 2.0f)), 0);
  }
}

// Few distinct values, so that ties are everywhere.
std::vector<float> coarse_row() {
  const auto levels = *rc::gen::container<std::vector<int>>(rc::gen::inRange(-9, 9));
  std::vector<float> row = {0.25f};
  for (int level : levels) row.push_back(level == -9 ? kMinusInfinity : static_cast<float>(level));
  return row;
}

TEST(TopK, EqualsSorting) {
  EXPECT_TRUE(rc::check("top-k of rows with ties", [] {
    const auto row = coarse_row();
    const int k = *rc::gen::inRange(1, static_cast<int>(row.size()) + 3);
    std::vector<int32_t> order(row.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, [&](int32_t a, int32_t b) {
      const float x = row[static_cast<size_t>(a)];
      const float y = row[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    });
    std::erase_if(order, [&](int32_t i) { return row[static_cast<size_t>(i)] == kMinusInfinity; });
    if (order.size() > static_cast<size_t>(k)) order.resize(static_cast<size_t>(k));
    std::ranges::sort(order);
    std::vector<Candidate> got;
    select_top_k(row, k, got);
    auto tokens = tokens_of(got);
    std::ranges::sort(tokens);
    RC_ASSERT(tokens == order);
  }));
}

TEST(TopK, LargeRows) {
  Random random(3);
  for (int k : {1, 40, 1000, 20000}) {
    for (int shape = 0; shape < 3; ++shape) {
      auto row = test::random_row(random, 50'003, 3.0f);
      if (shape == 1) std::ranges::sort(row);
      if (shape == 2) std::ranges::sort(row, std::greater{});
      std::vector<Candidate> got;
      select_top_k(row, k, got);
      ASSERT_EQ(got.size(), static_cast<size_t>(k));
      float worst = std::numeric_limits<float>::max();
      for (const Candidate& candidate : got) worst = std::min(worst, candidate.logit);
      EXPECT_EQ(std::ranges::count_if(row, [&](float x) { return x > worst; }) < k, true);
    }
  }
}

TEST(Mass, EqualsSorting) {
  EXPECT_TRUE(rc::check("prefix by mass of candidates with tied keys", [] {
    const auto weights = *rc::gen::nonEmpty(
        rc::gen::container<std::vector<uint64_t>>(rc::gen::inRange<uint64_t>(1, 1u << 20)));
    const auto keys =
        *rc::gen::container<std::vector<int>>(weights.size(), rc::gen::inRange(-5, 5));
    const float p = static_cast<float>(*rc::gen::inRange(1, 1001)) / 1000.0f;
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < weights.size(); ++i) {
      candidates.push_back({static_cast<float>(keys[i]), static_cast<int32_t>(i), weights[i]});
    }
    auto sorted = candidates;
    std::ranges::sort(sorted, key_before);
    const auto total = static_cast<double>(total_weight(candidates));
    uint64_t sum = 0;
    std::set<int32_t> expected;
    for (const Candidate& candidate : sorted) {
      if (!expected.empty() && static_cast<double>(sum) >= static_cast<double>(p) * total) {
        break;
      }
      sum += candidate.weight;
      expected.insert(candidate.token);
    }
    std::vector<Candidate> selection;
    keep_mass(candidates, p, [](const Candidate& candidate) { return candidate.logit; }, selection);
    RC_ASSERT(tokens_of(candidates) == std::vector<int32_t>(expected.begin(), expected.end()));
  }));
}

TEST(Filters, EqualTheSlowPipeline) {
  EXPECT_TRUE(rc::check("filters in combination", [] {
    Random random(*rc::gen::arbitrary<uint64_t>());
    const auto row = test::random_row(random, 1 + random.below(400), random.uniform(0.1f, 4.0f));
    SamplingParams params;
    params.temperature = *rc::gen::element(0.3f, 1.0f, 2.5f);
    params.top_k = *rc::gen::element(0, 1, 5, 50);
    params.typical_p = *rc::gen::element(0.1f, 0.6f, 0.95f, 1.0f);
    params.top_p = *rc::gen::element(0.05f, 0.5f, 0.9f, 0.99f, 1.0f);
    params.min_p = *rc::gen::element(0.0f, 0.02f, 0.3f);
    SamplerScratch scratch;
    const auto fast = test::run_filters(row, params, scratch);
    auto slow = test::slow_filters(row, params);
    std::erase_if(slow, [](const test::Probability& x) { return x.p < 1e-13; });
    RC_ASSERT(fast.size() >= slow.size());
    std::map<int32_t, double> probability;
    const auto total = static_cast<double>(total_weight(fast));
    for (const Candidate& x : fast) probability[x.token] = static_cast<double>(x.weight) / total;
    for (const auto& x : slow) {
      RC_ASSERT(probability.contains(x.token));
      RC_ASSERT(std::abs(probability[x.token] - x.p) < 1e-6);
    }
  }));
}

TEST(Filters, LargeRowWithoutTopK) {
  Random random(11);
  const auto row = test::random_row(random, 151'936, 2.5f);
  SamplerScratch scratch;
  for (float p : {1e-9f, 0.3f, 0.95f, 0.9999f}) {
    SamplingParams params;
    params.top_p = p;
    const auto fast = test::run_filters(row, params, scratch);
    const auto slow = test::slow_filters(row, params);
    // Masses differ in the last digits, so the boundary may move where steps are tiny.
    EXPECT_NEAR(static_cast<double>(fast.size()), static_cast<double>(slow.size()),
                2.0 + 1e-4 * static_cast<double>(slow.size()));
  }
}

TEST(TopP, TiesGoToTheLowerId) {
  SamplerScratch scratch;
  SamplingParams params;
  params.top_p = 0.5f;
  const auto kept = test::run_filters(std::vector<float>(8, 1.5f), params, scratch);
  EXPECT_EQ(tokens_of(kept), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(MinP, KeepsWhatReachesTheShare) {
  SamplerScratch scratch;
  SamplingParams params;
  params.min_p = 0.25f;
  const auto kept = test::run_filters(
      {std::log(0.5f), std::log(0.1f), std::log(0.13f), std::log(0.27f)}, params, scratch);
  EXPECT_EQ(tokens_of(kept), (std::vector<int32_t>{0, 2, 3}));
  params.min_p = 1.0f;
  EXPECT_EQ(tokens_of(test::run_filters({1.0f, 3.0f, 3.0f}, params, scratch)),
            (std::vector<int32_t>{1, 2}));
}

TEST(LogitBias, AddsAndSkipsWhatIsOutside) {
  std::vector<float> row = {0.0f, 1.0f, 2.0f};
  const std::vector<std::pair<int32_t, float>> bias = {
      {1, 5.0f}, {-1, 9.0f}, {3, 9.0f}, {1'000'000'000, 9.0f}, {1, -1.0f}};
  apply_logit_bias(row, bias);
  EXPECT_EQ(row, (std::vector<float>{0.0f, 5.0f, 2.0f}));
  const std::vector<int32_t> suppressed = {2, 3, 20, -1};
  apply_suppressed(row, suppressed);
  EXPECT_EQ(row, (std::vector<float>{0.0f, 5.0f, kMinusInfinity}));
}

// Prompt "Paris Paris Paris" with token 1 as Paris: only the repetition penalty sees the prompt,
// and it sees the token once.
TEST(Penalties, PromptAndOutput) {
  const std::vector<int32_t> prompt = {1, 1, 1};
  const std::vector<int32_t> output = {2, 2, 3};
  const std::vector<float> row = {1.0f, 4.0f, 4.0f, -2.0f};
  SamplerScratch scratch;
  auto got = row;
  apply_penalties(got, {prompt, {}}, {2.0f, 0.0f, 0.0f}, scratch);
  EXPECT_EQ(got, (std::vector<float>{1.0f, 2.0f, 4.0f, -2.0f}));
  got = row;
  apply_penalties(got, {prompt, {}}, {1.0f, 1.5f, 0.5f}, scratch);
  EXPECT_EQ(got, row);
  got = row;
  apply_penalties(got, {prompt, output}, {1.0f, 1.5f, 0.5f}, scratch);
  EXPECT_EQ(got, (std::vector<float>{1.0f, 4.0f, 4.0f - 1.5f - 1.0f, -2.0f - 1.5f - 0.5f}));
  got = row;
  apply_penalties(got, {prompt, output}, {2.0f, 1.5f, 0.5f}, scratch);
  EXPECT_EQ(got, (std::vector<float>{1.0f, 2.0f, 2.0f - 2.5f, -4.0f - 2.0f}));
  EXPECT_TRUE(std::ranges::all_of(scratch.per_token, [](int32_t x) { return x == 0; }));
}

TEST(Penalties, TinyRepetitionPenaltyStaysFinite) {
  const std::vector<int32_t> prompt = {0, 1, 99, -5};
  std::vector<float> row = {3.0f, -3.0f};
  SamplerScratch scratch;
  apply_penalties(row, {prompt, {}}, {1e-45f}, scratch);
  EXPECT_EQ(row[0], std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isfinite(row[1]));
}

// The definition, in quadratic time: for each earlier place whose preceding tokens equal the newest
// ones, the token at that place is penalised by the longest such match.
std::vector<float> slow_dry(std::vector<float> row, const std::vector<int32_t>& history,
                            const Dry& dry) {
  size_t begin = 0;
  if (dry.penalty_last_n >= 0 && static_cast<size_t>(dry.penalty_last_n) < history.size()) {
    begin = history.size() - static_cast<size_t>(dry.penalty_last_n);
  }
  const std::vector<int32_t> window(history.begin() + static_cast<std::ptrdiff_t>(begin),
                                    history.end());
  const std::set<int32_t> breakers(dry.breakers.begin(), dry.breakers.end());
  std::map<int32_t, int> longest;
  for (size_t place = 1; place < window.size(); ++place) {
    int length = 0;
    while (static_cast<size_t>(length) < place) {
      const int32_t earlier = window[place - 1 - static_cast<size_t>(length)];
      const int32_t newest = window[window.size() - 1 - static_cast<size_t>(length)];
      if (earlier != newest || breakers.contains(newest)) break;
      ++length;
    }
    int& value = longest[window[place]];
    value = std::max(value, length);
  }
  for (const auto& [token, length] : longest) {
    if (length < dry.allowed_length || breakers.contains(token)) continue;
    row[static_cast<size_t>(token)] -=
        dry.multiplier * std::pow(dry.base, static_cast<float>(length - dry.allowed_length));
  }
  return row;
}

TEST(Dry, EqualsTheDefinition) {
  EXPECT_TRUE(rc::check("DRY on repetitive histories", [] {
    const auto history = *rc::gen::container<std::vector<int32_t>>(rc::gen::inRange(0, 4));
    std::vector<int32_t> breakers;
    if (*rc::gen::arbitrary<bool>()) breakers = {3};
    const Dry dry = {0.8f, 1.75f, *rc::gen::inRange(1, 4), *rc::gen::element(-1, 0, 3, 10, 50),
                     breakers};
    const std::vector<float> row = {0.5f, 1.0f, -2.0f, 0.0f};
    const auto cut = static_cast<size_t>(*rc::gen::inRange<size_t>(0, history.size() + 1));
    const auto all = std::span<const int32_t>(history);
    SamplerScratch scratch;
    auto got = row;
    apply_dry(got, {all.first(cut), all.subspan(cut)}, dry, scratch);
    RC_ASSERT(got == slow_dry(row, history, dry));
    RC_ASSERT(std::ranges::all_of(scratch.per_token, [](int32_t x) { return x == 0; }));
  }));
}

TEST(Dry, ByHand) {
  const std::vector<int32_t> history = {0, 1, 2, 2, 1, 2, 3, 0, 1, 2};
  std::vector<float> row(4, 0.0f);
  SamplerScratch scratch;
  apply_dry(row, {history, {}}, {1.0f, 2.0f, 2, -1, {}}, scratch);
  // "0 1 2" was followed by 2 (length 3), "1 2" by 3 (length 2), "2" by 1 (too short).
  EXPECT_EQ(row, (std::vector<float>{0.0f, 0.0f, -2.0f, -1.0f}));
}

TEST(Dry, LongRepetitionIsLinearAndFinite) {
  const std::vector<int32_t> history(200'000, 1);
  std::vector<float> row(4, 0.0f);
  SamplerScratch scratch;
  apply_dry(row, {history, {}}, {5.0f, 4.0f, 2, -1, {}}, scratch);
  EXPECT_EQ(row[1], -std::numeric_limits<float>::max());
  EXPECT_EQ(row[0], 0.0f);
}

TEST(Draw, InverseOfTheCumulativeDistribution) {
  const std::vector<Candidate> candidates = {{0.0f, 4, 1}, {0.0f, 7, 2}, {0.0f, 9, 1}};
  EXPECT_EQ(draw(candidates, 0.0), 4);
  EXPECT_EQ(draw(candidates, 0.2499), 4);
  EXPECT_EQ(draw(candidates, 0.25), 7);
  EXPECT_EQ(draw(candidates, 0.7499), 7);
  EXPECT_EQ(draw(candidates, 0.75), 9);
  EXPECT_EQ(draw(candidates, 1.0 - 0x1.0p-53), 9);
}

}  // namespace
}  // namespace pelton::sampling
