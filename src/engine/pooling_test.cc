// Embeddings: the final hidden states of a prompt, whatever else the engine does meanwhile.
#include <gtest/gtest.h>

#include <cmath>
#include <string_view>

#include "base/file.h"
#include "base/json_tree.h"
#include "engine/engine_test_util.h"
#include "tests/support/source_root.h"

namespace pelton::engine {
namespace {

EngineOptions options_with(int32_t batched_tokens, int32_t blocks) {
  EngineOptions options;
  options.threads = 2;
  options.max_model_len = 256;
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = batched_tokens;
  options.block_size = 16;
  options.num_kv_blocks = blocks;
  return options;
}

std::vector<int32_t> prompt(const Engine& engine, int repeats) {
  std::string text;
  for (int i = 0; i < repeats; ++i) text += "The mill by the river turns when the water is high. ";
  return engine.tokenizer()->encode(text, {.add_special_tokens = false});
}

struct Pooled {
  std::vector<float> embedding;
  int events = 0;
  FinishReason finish = FinishReason::kNone;
  Usage usage;
  Status error;

  auto sink() {
    return [this](const TokenEvent& event) {
      ++events;
      finish = event.finish;
      usage = event.usage;
      error = event.error;
      if (!event.embedding.empty()) embedding = event.embedding;
    };
  }
};

Pooled pooled(Engine& engine, const std::vector<int32_t>& ids, Pooling pooling) {
  Pooled out;
  EXPECT_TRUE(engine.submit({.prompt_ids = ids, .pooling = pooling}, out.sink()).ok());
  engine.run_until_idle();
  EXPECT_TRUE(out.error.ok()) << out.error.to_string();
  return out;
}

// Rows of the final norm as the forward names them, in the order of their positions.
struct Rows final : TraceSink {
  void on_tensor(int, std::string_view name, const Tensor& tensor) override {
    if (name != "final_norm") return;
    for (int64_t i = 0; i < tensor.num_rows(); ++i)
      rows.emplace_back(tensor.row_f32(i), tensor.row_f32(i) + tensor.row_elements());
  }
  std::vector<std::vector<float>> rows;
};

TEST(Pooling, IsTheLastRowOrTheMeanOfAll) {
  auto engine = load_or_fail(small_model(), options_with(64, 0));
  ASSERT_NE(engine, nullptr);
  const auto ids = prompt(*engine, 5);
  Rows rows;
  engine->set_trace_sink(&rows);
  Request all{.prompt_ids = ids};
  all.sampling.max_tokens = 1;
  all.sampling.prompt_logprobs = 0;
  const Outcome outcome = run_request(*engine, all);
  EXPECT_TRUE(outcome.completions.at(0).error.ok()) << outcome.completions.at(0).error.to_string();
  engine->set_trace_sink(nullptr);
  ASSERT_EQ(rows.rows.size(), ids.size());
  const Pooled last = pooled(*engine, ids, Pooling::kLast);
  EXPECT_EQ(last.embedding, rows.rows.back());
  EXPECT_EQ(last.events, 1);
  EXPECT_EQ(last.finish, FinishReason::kLength);
  EXPECT_EQ(last.usage.prompt_tokens, std::ssize(ids));
  const Pooled mean = pooled(*engine, ids, Pooling::kMean);
  ASSERT_EQ(mean.embedding.size(), rows.rows.back().size());
  for (size_t k = 0; k < mean.embedding.size(); ++k) {
    double sum = 0;
    for (const auto& row : rows.rows) sum += static_cast<double>(row[k]);
    EXPECT_EQ(mean.embedding[k], static_cast<float>(sum / static_cast<double>(ids.size())));
  }
}

TEST(Pooling, HasTheSameBitsInAnyCompany) {
  auto alone = load_or_fail(small_model(), options_with(256, 0));
  ASSERT_NE(alone, nullptr);
  const auto ids = prompt(*alone, 6);
  ASSERT_GT(ids.size(), 60u);
  for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
    const std::vector<float> expected = pooled(*alone, ids, pooling).embedding;
    EXPECT_EQ(pooled(*alone, ids, pooling).embedding, expected) << "with the prompt in the cache";
    auto tight = Engine::create(alone->loaded(), options_with(24, 16));
    ASSERT_TRUE(tight.ok()) << tight.status().to_string();
    std::vector<Pooled> outs(3);
    std::vector<CompletionOutcome> texts(3);
    for (size_t i = 0; i < outs.size(); ++i) {
      Request chatter{.prompt_ids = prompt(*alone, static_cast<int>(i) + 1)};
      chatter.sampling.max_tokens = 60;
      chatter.sampling.ignore_eos = true;
      ASSERT_TRUE((*tight)->submit(chatter, [](const TokenEvent&) {}).ok());
      ASSERT_TRUE((*tight)->submit({.prompt_ids = ids, .pooling = pooling}, outs[i].sink()).ok());
    }
    (*tight)->run_until_idle();
    for (const Pooled& out : outs) EXPECT_EQ(out.embedding, expected);
    const EngineMetrics m = (*tight)->metrics();
    EXPECT_EQ(m.scheduler.free_blocks, m.scheduler.total_blocks);
    EXPECT_EQ(m.requests, m.finished);
  }
}

TEST(Pooling, OneTokenIsItsOwnMean) {
  auto engine = load_or_fail(small_model(), options_with(64, 0));
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(pooled(*engine, {5}, Pooling::kMean).embedding,
            pooled(*engine, {5}, Pooling::kLast).embedding);
}

// tests/golden/embeddings: normalised last and mean hidden states by transformers, in 32-bit
// floats.
TEST(Pooling, EqualsTransformers) {
  auto text = read_file(pelton::source_root() / "tests/golden/embeddings/runnel-2m.json", 1 << 20);
  ASSERT_TRUE(text.ok());
  const Json golden = *Json::parse(*text);
  EngineOptions options = options_with(64, 0);
  options.activations = kernels::ActivationPrecision::kF32;
  options.kv_cache_dtype = kernels::KvFormat::kF32;
  auto engine = load_or_fail(small_model(), options);
  ASSERT_NE(engine, nullptr);
  for (size_t i = 0; i < golden["ids"].size(); ++i) {
    std::vector<int32_t> ids;
    for (const Json& id : golden["ids"][i].elements())
      ids.push_back(static_cast<int32_t>(id.as_integer()));
    for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
      const Json& expected = golden["out"][2 * i + (pooling == Pooling::kMean ? 1 : 0)];
      const std::vector<float> got = pooled(*engine, ids, pooling).embedding;
      ASSERT_EQ(got.size(), expected.size());
      double squares = 0;
      for (const float v : got) squares += static_cast<double>(v) * static_cast<double>(v);
      for (size_t k = 0; k < got.size(); ++k)
        EXPECT_NEAR(static_cast<double>(got[k]) / std::sqrt(squares), expected[k].as_double(),
                    1e-5);
    }
  }
}

TEST(StopStrings, EventsSayWhichOneWasMet) {
  auto engine = load_or_fail(small_model(), options_with(64, 0));
  ASSERT_NE(engine, nullptr);
  Request request{.prompt_ids = prompt(*engine, 1)};
  request.sampling.max_tokens = 40;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  const std::string text = run_request(*engine, request).completions.at(0).text;
  ASSERT_GT(text.size(), 20u);
  request.sampling.stop = {"\x01never", text.substr(12, 3), text.substr(12, 4)};
  int32_t stopped_by = -1;
  ASSERT_TRUE(engine
                  ->submit(request,
                           [&](const TokenEvent& event) {
                             if (event.finish == FinishReason::kStop) stopped_by = event.stopped_by;
                           })
                  .ok());
  engine->run_until_idle();
  EXPECT_GT(stopped_by, 0);
}

}  // namespace
}  // namespace pelton::engine
