#include "runtime/runner.h"

#include <utility>

namespace pelton::runtime {

Runner::Runner(const models::Model& model, ThreadPool& pool, const RunnerOptions& options,
               kv::KvPages pages, BatchBuilder builder)
    : model_(model),
      pool_(pool),
      options_(options),
      pages_(std::move(pages)),
      builder_(std::move(builder)) {}

Result<std::unique_ptr<Runner>> Runner::create(const models::Model& model, ThreadPool& pool,
                                               const RunnerOptions& options,
                                               const MemoryPlan& plan) {
  device::Device* device = options.backend == nullptr ? nullptr : &options.backend->device();
  const kv::KvConfig config{.layers = models::kv_shape(model.config()),
                            .block_tokens = plan.block_tokens,
                            .format = options.shape.kv_format};
  auto pages = kv::KvPages::create(config, plan.num_blocks, device);
  if (!pages.ok()) return pages.status().with_context("KV cache");
  const BatchLimits limits = batch_limits(options.shape);
  if (device == nullptr) {
    auto scratch = memory::Region::allocate(plan.scratch);
    if (!scratch.ok()) return scratch.status().with_context("step scratch");
    std::unique_ptr<Runner> runner(
        new Runner(model, pool, options, std::move(pages).value(), BatchBuilder(limits)));
    runner->scratch_ = std::move(scratch).value();
    return runner;
  }
  auto scratch = memory::DeviceRegion::allocate(*device, plan.scratch);
  if (!scratch.ok()) return scratch.status().with_context("step scratch");
  auto inputs = memory::Mirror::create(*device, plan.inputs);
  if (!inputs.ok()) return inputs.status().with_context("step inputs");
  auto logits = memory::DeviceRegion::allocate(*device, plan.pinned - plan.inputs,
                                               memory::DeviceRegion::Kind::kPinnedHost);
  if (!logits.ok()) return logits.status().with_context("logits");
  BatchBuilder builder(limits, inputs->host());
  std::unique_ptr<Runner> runner(
      new Runner(model, pool, options, std::move(pages).value(), std::move(builder)));
  runner->device_ = {std::move(scratch).value(), std::move(inputs).value(),
                     std::move(logits).value()};
  return runner;
}

ops::StepContext Runner::context(memory::StepArena& arena, const ops::DeviceStep* device) const {
  return {.arena = arena,
          .pool = pool_,
          .cpu = ops::kernels_of(options_.isa),
          .activations = options_.activations,
          .sink = sink_,
          .device = device};
}

Result<Tensor> Runner::run(const sched::StepPlan& plan) {
  if (options_.backend != nullptr) return run_on_device(plan);
  for (const sched::BlockCopy& copy : plan.copies) {
    if (Status s = pages_.copy_block(copy.source, copy.target); !s.ok()) return s;
  }
  const nn::StepBatch batch = builder_.build(plan);
  memory::StepArena arena(scratch_.bytes());
  ops::StepContext step = context(arena, nullptr);
  return model_.forward(batch, pages_, step);
}

Result<Tensor> Runner::run_on_device(const sched::StepPlan& plan) {
  device::Stream& stream = options_.backend->stream();
  for (const sched::BlockCopy& copy : plan.copies) {
    if (Status s = pages_.copy_block(copy.source, copy.target, &stream); !s.ok()) return s;
  }
  const nn::StepBatch batch = builder_.build(plan);
  if (Status s = device_.inputs.upload(stream, builder_.used_bytes()); !s.ok()) return s;
  memory::StepArena arena(device_.scratch.bytes());
  const ops::DeviceStep device{.caps = options_.backend->device().caps(),
                               .kernels = options_.backend->kernels(),
                               .stream = &stream,
                               .inputs = &device_.inputs,
                               .zeroed = options_.backend->zeroed(),
                               .max_context = options_.shape.max_model_len,
                               .invariant = options_.shape.invariant};
  ops::StepContext step = context(arena, &device);
  Tensor logits = model_.forward(batch, pages_, step);
  const size_t bytes =
      static_cast<size_t>(logits.num_rows() * logits.row_elements()) * sizeof(float);
  check(logits.row_stride == logits.row_elements() && bytes <= device_.logits.size(),
        "logits do not fit into what was planned for them");
  if (Status s = stream.copy_to_host(device_.logits.bytes().data(), logits.data, bytes); !s.ok())
    return s;
  if (Status s = stream.finish(); !s.ok()) return s;
  logits.data = device_.logits.bytes().data();
  return logits;
}

Status Runner::device_fault() const {
  return options_.backend == nullptr ? Status() : options_.backend->device().fault();
}

}  // namespace pelton::runtime
