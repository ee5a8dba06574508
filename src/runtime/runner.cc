#include "runtime/runner.h"

#include <utility>

namespace pelton::runtime {

Runner::Runner(const models::Model& model, ThreadPool& pool, const RunnerOptions& options,
               kv::KvPages pages, memory::Region scratch)
    : model_(model),
      pool_(pool),
      options_(options),
      pages_(std::move(pages)),
      scratch_(std::move(scratch)),
      builder_(options.shape.max_num_batched_tokens, options.shape.max_num_seqs,
               options.shape.block_tokens) {}

Result<std::unique_ptr<Runner>> Runner::create(const models::Model& model, ThreadPool& pool,
                                               const RunnerOptions& options,
                                               const MemoryPlan& plan) {
  const kv::KvConfig config{.layers = models::kv_shape(model.config()),
                            .block_tokens = plan.block_tokens,
                            .format = options.shape.kv_format};
  auto pages = kv::KvPages::create(config, plan.num_blocks);
  if (!pages.ok()) return pages.status().with_context("KV cache");
  auto scratch = memory::Region::allocate(plan.scratch);
  if (!scratch.ok()) return scratch.status().with_context("step scratch");
  return std::unique_ptr<Runner>(
      new Runner(model, pool, options, std::move(pages).value(), std::move(scratch).value()));
}

Tensor Runner::run(const sched::StepPlan& plan) {
  for (const sched::BlockCopy& copy : plan.copies) pages_.copy_block(copy.source, copy.target);
  const nn::StepBatch batch = builder_.build(plan);
  memory::StepArena arena(scratch_.bytes());
  ops::StepContext context{.arena = arena,
                           .pool = pool_,
                           .cpu = ops::kernels_of(options_.isa),
                           .activations = options_.activations,
                           .sink = sink_};
  return model_.forward(batch, pages_, context);
}

}  // namespace pelton::runtime
