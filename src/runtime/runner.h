// Runs one step: block copies, batch, forward, logits. Owns the pages and the scratch; allocates
// nothing after create().
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "kv/pages/kv_pages.h"
#include "memory/device_region.h"
#include "memory/mirror.h"
#include "memory/region.h"
#include "models/model.h"
#include "runtime/backend.h"
#include "runtime/batch_builder.h"
#include "runtime/memory_plan.h"
#include "sched/step_plan.h"

namespace pelton::runtime {

struct RunnerOptions {
  EngineShape shape;
  kernels::ActivationPrecision activations = kernels::ActivationPrecision::kInt8;
  IsaLevel isa = IsaLevel::kGeneric;
  std::shared_ptr<Backend> backend = {};  // null: the CPU
};

class Runner {
 public:
  // `model` and `pool` must outlive the runner.
  static Result<std::unique_ptr<Runner>> create(const models::Model& model, ThreadPool& pool,
                                                const RunnerOptions& options,
                                                const MemoryPlan& plan);

  // Logits of the plan's sampling sequences and of every row of those with all_logits, [rows,
  // vocab_size] f32 in host memory, in plan order; valid until the next run. Errors are the
  // device's.
  Result<Tensor> run(const sched::StepPlan& plan);
  // Rows of the last run's logits that belong to plan.sequences[i].
  BatchBuilder::LogitRange logit_range(size_t i) const { return builder_.logit_ranges()[i]; }

  // OK, or why the device can no longer be trusted.
  Status device_fault() const;

  // Attached to every following step; null detaches.
  void set_trace_sink(TraceSink* sink) { sink_ = sink; }
  const kv::KvPages& pages() const { return pages_; }
  ThreadPool& pool() const { return pool_; }

 private:
  // What a runner on a device has besides.
  struct DeviceSide {
    memory::DeviceRegion scratch;
    memory::Mirror inputs;
    memory::DeviceRegion logits;  // pinned host memory
  };
  Runner(const models::Model& model, ThreadPool& pool, const RunnerOptions& options,
         kv::KvPages pages, BatchBuilder builder);

  ops::StepContext context(memory::StepArena& arena, const ops::DeviceStep* device) const;
  Result<Tensor> run_on_device(const sched::StepPlan& plan);

  const models::Model& model_;
  ThreadPool& pool_;
  RunnerOptions options_;
  kv::KvPages pages_;
  memory::Region scratch_;
  DeviceSide device_;
  BatchBuilder builder_;
  TraceSink* sink_ = nullptr;
};

}  // namespace pelton::runtime
