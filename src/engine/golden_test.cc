// Every architecture's tiny model against transformers in float32: logits, hidden states, greedy
// and beam outputs, from the Hugging Face folder and from the GGUF file.
#include "models/testing/golden.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "engine/engine_test_util.h"

namespace pelton::engine {
namespace {

using models::testing::Golden;
using models::testing::golden_names;
using models::testing::load_golden;
using models::testing::relative_error;

EngineOptions exact_options() {
  EngineOptions options;
  options.activations = kernels::ActivationPrecision::kF32;
  options.kv_cache_dtype = kernels::KvFormat::kF32;
  options.threads = 2;
  options.max_num_batched_tokens = 256;
  options.max_logit_rows = 256;
  return options;
}

// Residual streams by the goldens' names.
class HiddenStates final : public TraceSink {
 public:
  void on_tensor(int layer, std::string_view name, const Tensor& tensor) override {
    if (name != "embedding" && name != "output") return;
    std::string key(name);
    if (layer >= 0) key = "layer." + std::to_string(layer) + "." + key;
    std::vector<float>& values = states[key];
    for (int64_t row = 0; row < tensor.num_rows(); ++row) {
      values.insert(values.end(), tensor.row_f32(row), tensor.row_f32(row) + tensor.row_elements());
    }
  }
  std::map<std::string, std::vector<float>> states;
};

class GoldenModels : public testing::TestWithParam<std::string> {
 protected:
  static std::vector<std::filesystem::path> files(const Golden& golden) {
    std::vector<std::filesystem::path> paths = {golden.folder};
    if (!golden.gguf.empty()) paths.push_back(golden.gguf);
    return paths;
  }
};

TEST_P(GoldenModels, LogitsAndHiddenStates) {
  const auto golden = load_golden(GetParam());
  ASSERT_TRUE(golden.ok()) << golden.status().to_string();
  for (const auto& path : files(*golden)) {
    for (const auto& item : golden->cases) {
      EngineOptions options = exact_options();
      options.max_model_len = item.context_len;
      auto engine = load_or_fail(path, options);
      ASSERT_NE(engine, nullptr);
      HiddenStates hidden;
      engine->set_trace_sink(&hidden);
      const std::vector<float> logits = logits_of(*engine, item.ids);
      EXPECT_LE(relative_error(logits, item.logits.values), 1e-4) << path;
      for (const auto& [name, want] : item.hidden) {
        EXPECT_LE(relative_error(hidden.states[name], want.values), 1e-4) << path << " " << name;
      }
    }
  }
}

TEST_P(GoldenModels, GreedyContinuation) {
  const auto golden = load_golden(GetParam());
  ASSERT_TRUE(golden.ok()) << golden.status().to_string();
  if (golden->greedy.ids.empty()) return;
  for (const auto& path : files(*golden)) {
    EngineOptions options = exact_options();
    options.max_num_batched_tokens = 16;  // chunks and decode steps mixed
    options.max_logit_rows = 16;
    options.max_model_len =
        static_cast<int32_t>(golden->greedy.prompt.size() + golden->greedy.ids.size());
    auto engine = load_or_fail(path, options);
    ASSERT_NE(engine, nullptr);
    Request request;
    request.prompt_ids = golden->greedy.prompt;
    request.sampling.temperature = 0.0f;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = static_cast<int32_t>(golden->greedy.ids.size());
    const Outcome outcome = run_request(*engine, request);
    EXPECT_EQ(outcome.completions.at(0).ids, golden->greedy.ids)
        << path << " margin " << golden->greedy.least_margin;
  }
}

TEST_P(GoldenModels, BeamSearch) {
  const auto golden = load_golden(GetParam());
  ASSERT_TRUE(golden.ok()) << golden.status().to_string();
  if (golden->beams.empty()) return;
  auto engine = load_or_fail(golden->folder, exact_options());
  ASSERT_NE(engine, nullptr);
  const std::map<std::string, EarlyStopping> stopping = {{"false", EarlyStopping::kFalse},
                                                         {"true", EarlyStopping::kTrue},
                                                         {"never", EarlyStopping::kNever}};
  for (const auto& beam : golden->beams) {
    Request request;
    request.prompt_ids = beam.prompt;
    request.sampling.num_beams = beam.num_beams;
    request.sampling.n = static_cast<int32_t>(beam.sequences.size());
    request.sampling.length_penalty = beam.length_penalty;
    request.sampling.early_stopping = stopping.at(beam.early_stopping);
    request.sampling.max_tokens = beam.max_new_tokens;
    request.sampling.ignore_eos = true;
    request.sampling.stop_token_ids = beam.eos_token_ids;
    const Outcome outcome = run_request(*engine, request);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.to_string();
    ASSERT_EQ(outcome.completions.size(), beam.sequences.size());
    for (size_t i = 0; i < beam.sequences.size(); ++i) {
      EXPECT_EQ(outcome.completions[i].ids, beam.sequences[i])
          << "rank " << i << " penalty " << beam.length_penalty << " early " << beam.early_stopping;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, GoldenModels, testing::ValuesIn(golden_names()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (c == '-') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace pelton::engine
