// After warm-up a step takes no memory: planning, the forward and the fold back run in what
// start-up took.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine.h"
#include "runtime/runner.h"
#include "sched/scheduler.h"
#include "tests/support/allocation_hook.h"
#include "tests/support/source_root.h"

namespace pelton {
namespace {

TEST(StepPath, AllocatesNothingAfterWarmUp) {
  auto files = engine::ModelFiles::open(pelton::source_root() / "tests/data/runnel-2m");
  ASSERT_TRUE(files.ok());
  engine::EngineOptions options;
  options.threads = 2;
  options.max_model_len = 512;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 32;
  const auto plan = engine::plan_memory(**files, &options);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  ThreadPool pool(options.threads);
  auto loaded = engine::LoadedModel::load(
      std::move(files).value(),
      {.context_len = options.max_model_len, .weight_bytes = plan->weights}, pool);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const runtime::EngineShape shape{.max_model_len = options.max_model_len,
                                   .max_num_seqs = options.max_num_seqs,
                                   .max_num_batched_tokens = options.max_num_batched_tokens,
                                   .max_logit_rows = options.max_num_seqs,
                                   .block_tokens = options.block_size,
                                   .kv_format = options.kv_cache_dtype};
  auto runner = runtime::Runner::create(
      (*loaded)->model(), pool, {.shape = shape, .isa = cpu_features().best_level()}, *plan);
  ASSERT_TRUE(runner.ok()) << runner.status().to_string();
  sched::Scheduler scheduler({.max_num_seqs = options.max_num_seqs,
                              .max_num_batched_tokens = options.max_num_batched_tokens,
                              .max_model_len = options.max_model_len,
                              .block_tokens = options.block_size,
                              .num_blocks = plan->num_blocks,
                              .end_ids = {}});
  for (int32_t i = 0; i < 6; ++i) {
    Request request;
    for (int32_t t = 0; t < 60 + 10 * i; ++t)
      request.prompt_ids.push_back((t * 37 + i * 101) % 8000);
    request.sampling.max_tokens = 300;
    request.sampling.ignore_eos = true;
    ASSERT_TRUE(scheduler.add(static_cast<RequestId>(i + 1), request).ok());
  }
  std::vector<sched::SampledToken> sampled;
  sampled.reserve(static_cast<size_t>(options.max_num_seqs));
  const auto step = [&] {
    const sched::StepPlan& step_plan = scheduler.plan();
    const Tensor logits = *(*runner)->run(step_plan);
    sampled.clear();
    for (size_t i = 0; i < step_plan.sequences.size(); ++i) {
      if (!step_plan.sequences[i].samples) continue;
      const float* row = logits.row_f32((*runner)->logit_range(i).first);
      sampled.push_back(
          {step_plan.sequences[i].sequence,
           static_cast<int32_t>(std::max_element(row, row + logits.row_elements()) - row)});
    }
    scheduler.commit(step_plan, sampled);
  };
  for (int i = 0; i < 40; ++i) step();  // prompts in chunks, then decodes
  uint64_t allocations = 0;
  {
    const testing::AllocationCounter counter;
    for (int i = 0; i < 100; ++i) step();  // crosses block borders
    allocations = counter.calls();
  }
  EXPECT_EQ(allocations, 0u);
}

}  // namespace
}  // namespace pelton
