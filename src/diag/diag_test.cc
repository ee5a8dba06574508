#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "diag/prove.h"
#include "diag/quality.h"
#include "diag/windows.h"
#include "engine/engine.h"
#include "tests/support/source_root.h"

namespace pelton::diag {
namespace {

std::filesystem::path data() { return pelton::source_root() / "tests/data"; }

std::unique_ptr<engine::Engine> load(const engine::EngineOptions& options) {
  auto files = engine::ModelFiles::open(data() / "runnel-2m");
  EXPECT_TRUE(files.ok()) << files.status().to_string();
  auto engine = engine::Engine::load(std::move(files).value(), options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

engine::EngineOptions window_options() {
  engine::EngineOptions options;
  options.max_num_seqs = 1;
  options.max_model_len = 1024;
  options.max_num_batched_tokens = 128;
  options.max_logit_rows = 128;
  return options;
}

TEST(Windows, CutWithoutOverlap) {
  const std::vector<int32_t> ids = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const auto windows = cut_windows(ids, 4, 0);
  ASSERT_TRUE(windows.ok());
  ASSERT_EQ(windows->size(), 2u);
  EXPECT_EQ((*windows)[1].inputs, (std::vector<int32_t>{4, 5, 6, 7}));
  EXPECT_EQ((*windows)[1].targets, (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(cut_windows(ids, 4, 1)->size(), 1u);
  EXPECT_EQ(cut_windows(ids, 9, 0).status().code(), StatusCode::kInvalidArgument);
}

TEST(Quality, LossesOfOurOwnTextMatchTheReference) {
  auto engine = load(window_options());
  ASSERT_NE(engine, nullptr);
  const auto text = read_file(data() / "text.txt", 1 << 20);
  ASSERT_TRUE(text.ok());
  const auto recorded = read_file(data() / "text.loss.json", 1 << 20);
  ASSERT_TRUE(recorded.ok());
  const nlohmann::json reference = nlohmann::json::parse(*recorded);
  const auto windows = cut_windows(encode_documents(*engine->tokenizer(), *text, 0), 1024, 0);
  ASSERT_TRUE(windows.ok());
  const auto result = perplexity(*engine, *windows, nullptr);
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  const auto& per_window = reference.contains("per_window") ? reference["per_window"]
                                                            : reference["runnel-2m"]["per_window"];
  ASSERT_EQ(result->window_losses.size(), per_window.size());
  for (size_t i = 0; i < per_window.size(); ++i) {
    EXPECT_NEAR(result->window_losses[i], per_window[i].get<double>(), 1e-3) << "window " << i;
  }
}

TEST(Prove, ARowsBitsDependOnItsOwnTokensOnly) {
  engine::EngineOptions options;
  options.max_model_len = 256;
  options.threads = 1;
  for (const auto format :
       {kernels::KvFormat::kF16, kernels::KvFormat::kInt8, kernels::KvFormat::kFp8}) {
    options.kv_cache_dtype = format;
    auto engine = load(options);
    ASSERT_NE(engine, nullptr);
    const auto prompt = engine->tokenizer()->encode(
        "def efficiency(jet, bucket):\n    return 2 * bucket * (jet - bucket) / (jet * jet)\n\nThe "
        "wheel turns and the "
        "water leaves almost at rest. 3.14159 and 1879.\n",
        {.add_special_tokens = false});
    const auto cases = prove(engine->loaded(), options, prompt, 56);
    ASSERT_TRUE(cases.ok()) << cases.status().to_string();
    EXPECT_GE(cases->size(), 9u);
    for (const ProofCase& c : *cases) {
      EXPECT_TRUE(c.exercised) << c.name;
      EXPECT_EQ(c.differing_rows, 0) << c.name << ": " << c.first_difference;
    }
  }
}

}  // namespace
}  // namespace pelton::diag
