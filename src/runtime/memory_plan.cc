#include "runtime/memory_plan.h"

#include <algorithm>
#include <vector>

#include "memory/mirror.h"
#include "memory/uploader.h"
#include "runtime/graph_cache.h"

namespace pelton::runtime {
namespace {

// Peak scratch of one forward over `rows` rows of `sequences` sequences at full context.
size_t dry_run(const models::Model& model, const kv::KvPages& pages, int32_t rows,
               int32_t sequences, int32_t logit_rows, const EngineShape& shape,
               ops::StepContext& context) {
  const std::vector<int32_t> ids(static_cast<size_t>(rows), 0);
  const std::vector<int32_t> blocks(
      static_cast<size_t>(shape.max_model_len / shape.block_tokens + 1), 0);
  std::vector<kernels::SequenceSlice> slices;
  for (int32_t i = 0; i < sequences; ++i) {
    const int32_t first = static_cast<int32_t>(int64_t{rows} * i / sequences);
    const int32_t end = static_cast<int32_t>(int64_t{rows} * (i + 1) / sequences);
    slices.push_back(
        {first, end - first, std::max(end - first, shape.max_model_len), blocks.data()});
  }
  std::vector<int32_t> wanted;
  for (int32_t i = 0; i < logit_rows; ++i) wanted.push_back(std::min(i, rows - 1));
  context.arena.reset();
  const nn::StepBatch batch{ids, ids, ids, slices, wanted};
  model.forward(batch, pages, context);
  return context.arena.peak();
}

}  // namespace

size_t plan_scratch(const models::Model& model, const EngineShape& shape, int threads, IsaLevel isa,
                    kernels::ActivationPrecision activations, const ops::DeviceStep* device) {
  memory::StepArena arena = memory::StepArena::counting();
  ThreadPool pool(threads);
  ops::StepContext context{.arena = arena,
                           .pool = pool,
                           .cpu = ops::kernels_of(isa),
                           .activations = activations,
                           .device = device};
  const auto pages = kv::KvPages::create({.layers = models::kv_shape(model.config()),
                                          .block_tokens = shape.block_tokens,
                                          .format = shape.kv_format},
                                         0);
  check(pages.ok(), "pages without blocks");
  // The widest step is one long prompt, or as many sequences as fit; scratch is the larger of the
  // two.
  const int32_t rows = shape.max_num_batched_tokens;
  const int32_t sequences = std::min(shape.max_num_seqs, rows);
  const int32_t logit_rows = std::min(shape.max_logit_rows, rows);
  const size_t one = dry_run(model, *pages, rows, 1, logit_rows, shape, context);
  const size_t many = dry_run(model, *pages, rows, sequences, logit_rows, shape, context);
  const size_t decode =
      dry_run(model, *pages, sequences, sequences, std::min(logit_rows, sequences), shape, context);
  return std::max({one, many, decode});
}

BatchLimits batch_limits(const EngineShape& shape) {
  return {.max_tokens = shape.max_num_batched_tokens,
          .max_sequences = shape.max_num_seqs,
          .max_model_len = shape.max_model_len,
          .block_tokens = shape.block_tokens};
}

size_t sampled_bytes(const EngineShape& shape) {
  return static_cast<size_t>(shape.max_num_seqs) * (sizeof(int32_t) + sizeof(ops::SampleState));
}

void plan_device_side(const EngineShape& shape, const models::ModelConfig& config,
                      const kernels::DeviceKernels& kernels, MemoryPlan* plan) {
  plan->inputs = BatchBuilder::storage_bytes(batch_limits(shape));
  plan->sampled = sampled_bytes(shape);
  plan->graphs =
      shape.graphs ? planned_graph_bytes(shape.max_num_seqs, config.num_hidden_layers) : 0;
  plan->shared = ops::zeroed_bytes(kernels);
  const size_t running = memory::Mirror::pinned_bytes(plan->inputs) + 3 * plan->sampled +
                         logit_bytes(shape, config.vocab_size);
  // The upload's buffers are given back before the others are taken.
  plan->pinned = std::max(running, memory::Uploader::kPinnedBytes);
  plan->host += plan->inputs;
}

size_t logit_bytes(const EngineShape& shape, int32_t vocab_size) {
  const auto rows =
      static_cast<size_t>(std::min(shape.max_logit_rows, shape.max_num_batched_tokens));
  return rows * static_cast<size_t>(vocab_size) * sizeof(float);
}

}  // namespace pelton::runtime
