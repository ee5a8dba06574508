#include "sampling/beam_search.h"

#include <gtest/gtest.h>

#include "sampling/test_support.h"

namespace pelton::sampling {
namespace {

using test::kMinusInfinity;

// The toy model of the goldens: the last two tokens choose a row of a table.
class TableModel {
 public:
  TableModel(size_t vocab, std::vector<float> table, std::vector<int32_t> prompt)
      : vocab_(vocab), table_(std::move(table)), prompt_(std::move(prompt)) {}

  std::vector<float> logits(std::span<const int32_t> output) const {
    std::vector<int32_t> all = prompt_;
    all.insert(all.end(), output.begin(), output.end());
    const auto last = static_cast<size_t>(all[all.size() - 1]);
    const auto previous = static_cast<size_t>(all[all.size() - 2]);
    const size_t row = (previous * 3 + last) % vocab_;
    const auto begin = table_.begin() + static_cast<std::ptrdiff_t>(row * vocab_);
    return {begin, begin + static_cast<std::ptrdiff_t>(vocab_)};
  }

 private:
  size_t vocab_;
  std::vector<float> table_;
  std::vector<int32_t> prompt_;
};

// Runs to the end; fails the test when parents and tokens do not describe the live beams.
int run(BeamSearch& search, const TableModel& model) {
  int steps = 0;
  bool done = false;
  std::vector<std::vector<int32_t>> outputs(1);
  while (!done) {
    std::vector<std::vector<float>> rows;
    for (const auto& output : outputs) rows.push_back(model.logits(output));
    std::vector<std::span<float>> spans(rows.begin(), rows.end());
    auto step = search.advance(spans);
    EXPECT_TRUE(step.ok());
    ++steps;
    done = step->done;
    std::vector<std::vector<int32_t>> next;
    for (size_t i = 0; i < step->parents.size(); ++i) {
      next.push_back(outputs[static_cast<size_t>(step->parents[i])]);
      next.back().push_back(step->tokens[i]);
      const auto live = search.live_tokens(static_cast<int32_t>(i));
      EXPECT_EQ(next.back(), std::vector<int32_t>(live.begin(), live.end()));
    }
    outputs = std::move(next);
  }
  return steps;
}

SamplingParams beam_params(const nlohmann::json& run) {
  SamplingParams params;
  params.num_beams = run["num_beams"];
  params.n = params.num_beams;
  params.length_penalty = run["length_penalty"];
  params.min_tokens = run["min_tokens"];
  const std::string early = run["early_stopping"];
  params.early_stopping = early == "true"    ? EarlyStopping::kTrue
                          : early == "never" ? EarlyStopping::kNever
                                             : EarlyStopping::kFalse;
  return params;
}

TEST(BeamSearch, EqualsTransformers) {
  int compared = 0;
  const auto file = test::golden("beams.json");
  for (const auto& item : file["cases"]) {
    const TableModel model(item["vocab"].get<size_t>(), item["table"].get<std::vector<float>>(),
                           item["prompt"].get<std::vector<int32_t>>());
    for (const auto& expected : item["runs"]) {
      BeamSearch search(beam_params(expected), expected["eos"].get<std::vector<int32_t>>(),
                        expected["max_tokens"].get<int32_t>());
      run(search, model);
      const auto hypotheses = search.finish(expected["num_beams"].get<int32_t>());
      ASSERT_EQ(hypotheses.size(), expected["sequences"].size()) << expected;
      for (size_t i = 0; i < hypotheses.size(); ++i) {
        ASSERT_EQ(hypotheses[i].tokens, expected["sequences"][i].get<std::vector<int32_t>>())
            << expected;
        ASSERT_NEAR(hypotheses[i].score, expected["scores"][i].get<float>(), 2e-4f) << expected;
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 600);
}

// One token ends, with overwhelming probability from the start.
TEST(BeamSearch, StopsAtTheTokenLimit) {
  for (float end_logit : {-50.0f, 0.0f, 50.0f}) {
    std::vector<float> table(10 * 10, 0.0f);
    for (size_t row = 0; row < 10; ++row) table[row * 10 + 9] = end_logit;
    const TableModel model(10, table, {0, 1});
    SamplingParams params;
    params.num_beams = 4;
    params.early_stopping = EarlyStopping::kNever;
    params.length_penalty = 3.0f;
    BeamSearch search(params, {9}, 8);
    EXPECT_LE(run(search, model), 8);
    const auto hypotheses = search.finish(4);
    EXPECT_EQ(hypotheses.size(), 4u);
    for (const auto& hypothesis : hypotheses) {
      ASSERT_LE(hypothesis.tokens.size(), 8u);
      const auto end = std::ranges::find(hypothesis.tokens, 9);
      if (end != hypothesis.tokens.end()) {
        EXPECT_EQ(end + 1, hypothesis.tokens.end());
      }
      if (end_logit < 0.0f) {
        EXPECT_EQ(hypothesis.tokens.size(), 8u);
      }
    }
  }
}

TEST(BeamSearch, CutSearchReturnsLiveBeams) {
  const TableModel model(10, std::vector<float>(100, 0.0f), {0, 1});
  SamplingParams params;
  params.num_beams = 3;
  BeamSearch search(params, {}, 100);
  std::vector<float> row = model.logits({});
  const std::vector<std::span<float>> rows = {row};
  ASSERT_TRUE(search.advance(rows).ok());
  const auto hypotheses = search.finish(2);
  ASSERT_EQ(hypotheses.size(), 2u);
  EXPECT_EQ(hypotheses[0].tokens, std::vector<int32_t>{0});
  EXPECT_EQ(hypotheses[1].tokens, std::vector<int32_t>{1});
  EXPECT_NEAR(hypotheses[0].score, std::log(0.1f), 1e-5f);
}

TEST(BeamSearch, FewerTokensThanBeams) {
  std::vector<float> row = {0.0f, kMinusInfinity, 1.0f};
  SamplingParams params;
  params.num_beams = 5;
  BeamSearch search(params, {}, 4);
  const std::vector<std::span<float>> rows = {row};
  const auto step = search.advance(rows);
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->tokens, (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(search.num_live(), 2);
}

TEST(BeamSearch, RowsWithoutADistributionFail) {
  for (float flaw : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> row = {0.0f, flaw, 1.0f};
    SamplingParams params;
    params.num_beams = 2;
    BeamSearch search(params, {}, 4);
    const std::vector<std::span<float>> rows = {row};
    EXPECT_EQ(search.advance(rows).status().code(), StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace pelton::sampling
