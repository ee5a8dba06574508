// Runs steps: block copies, batch, forward, logits or tokens. Owns the pages and the scratch;
// allocates nothing after create() but graphs, which the plan counts.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "kv/pages/kv_pages.h"
#include "memory/device_region.h"
#include "memory/mirror.h"
#include "memory/region.h"
#include "models/model.h"
#include "ops/sample.h"
#include "runtime/backend.h"
#include "runtime/batch_builder.h"
#include "runtime/graph_cache.h"
#include "runtime/memory_plan.h"
#include "sched/step_plan.h"

namespace pelton::runtime {

struct RunnerOptions {
  EngineShape shape;
  kernels::ActivationPrecision activations = kernels::ActivationPrecision::kInt8;
  IsaLevel isa = IsaLevel::kGeneric;
  std::shared_ptr<Backend> backend = {};  // null: the CPU
};

// What a step chose on a device, one for each of its sampling sequences, in plan order.
struct SampledTokens {
  std::span<const int32_t> tokens;
  std::span<const ops::SampleState> states;
};

// Where launched steps' time went, since timing was turned on.
struct StepTimes {
  int64_t steps = 0;
  double waited = 0;  // seconds that the host waited for the device
  double timing = 0;  // that timing itself took of the host
  double span = 0;    // seconds on the device from the end of the first step to that of the last,
  double idle = 0;    // of which it had nothing to do
};

class Runner {
 public:
  // `model` and `pool` must outlive the runner.
  static Result<std::unique_ptr<Runner>> create(const models::Model& model, ThreadPool& pool,
                                                const RunnerOptions& options,
                                                const MemoryPlan& plan);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Logits of the plan's sampling sequences and of every row of those with all_logits, [rows,
  // vocab_size] f32 in host memory, in plan order; valid until the next run. Errors are the
  // device's. No launched step is under way. With `keep_hidden` the same rows' final hidden states
  // are kept for hidden().
  Result<Tensor> run(const sched::StepPlan& plan, bool keep_hidden = false);
  // [rows, hidden_size] f32 in host memory, of the last run with keep_hidden; valid until the next.
  const Tensor& hidden() const { return capture_.hidden; }
  // Rows of the last run's logits that belong to plan.sequences[i].
  BatchBuilder::LogitRange logit_range(size_t i) const { return builder_.logit_ranges()[i]; }

  // Whether launch() may be used: on a device that samples, with nobody looking at intermediates.
  bool samples_on_device() const;
  // What the lists of one step's requests may take in all (SampleRequest::list_bytes).
  size_t list_room() const { return BatchBuilder::list_bytes(batch_limits(options_.shape)); }
  // Queues a step and the choice of its tokens and returns. `requests`: one for each sampling
  // sequence; none has all_logits. Tokens that are pending in the plan are those that the step
  // launched before chose. At most two steps are under way. Left by an exception: recover().
  Status launch(const sched::StepPlan& plan, std::span<const SampleRequest> requests);
  // After launch() was left by an exception: whether it was only that the step cannot be captured,
  // so that launching it again may do.
  bool recover();
  // Waits for the step that was launched first. Valid until the next but one is launched.
  Result<SampledTokens> wait();
  // Waits for everything that is under way and forgets it.
  void abandon();

  // Costs an event a step while it is on.
  void set_timing(bool on);
  const StepTimes& times() const { return times_; }

  // OK, or why the device can no longer be trusted.
  Status device_fault() const;
  const GraphCache& graphs() const { return graphs_; }

  // Attached to every following step; null detaches.
  void set_trace_sink(TraceSink* sink) { sink_ = sink; }
  const kv::KvPages& pages() const { return pages_; }
  ThreadPool& pool() const { return pool_; }

 private:
  static constexpr int kMostUnderWay = 2;

  // A step's way back.
  struct Answer {
    memory::DeviceRegion pinned;           // tokens, then states
    std::unique_ptr<device::Event> begun;  // recorded while steps are timed
    std::unique_ptr<device::Event> arrived;
    size_t count = 0;
  };
  // What a runner on a device has besides.
  struct DeviceSide {
    memory::DeviceRegion scratch;
    memory::Mirror inputs;
    memory::DeviceRegion logits;   // pinned host memory
    memory::DeviceRegion sampled;  // tokens [max_num_seqs], then states
    // One more than steps under way: the last one's end is needed when the next one is timed.
    std::array<Answer, kMostUnderWay + 1> answers;
  };
  Runner(const models::Model& model, ThreadPool& pool, const RunnerOptions& options,
         kv::KvPages pages, BatchBuilder builder);
  Status take_device_side(const MemoryPlan& plan, memory::Mirror inputs);

  // Keeps the final hidden states that a forward names, and shows a sink from outside everything.
  struct HiddenCapture final : TraceSink {
    bool wants(int layer, std::string_view name) const override;
    void on_tensor(int layer, std::string_view name, const Tensor& tensor) override;
    TraceSink* next = nullptr;
    Tensor hidden;
    std::vector<float> values;  // hidden's
  };

  // `sink` is null where nobody looks.
  ops::StepContext context(memory::StepArena& arena, const ops::DeviceStep* device,
                           TraceSink* sink) const;
  ops::DeviceStep device_step() const;
  Result<Tensor> run_on_device(const sched::StepPlan& plan, TraceSink* sink);
  Status queue_sampled(const nn::StepBatch& batch, std::span<const ops::SampleRow> requests);
  void name_pending(const sched::StepPlan& plan);
  Status queue_answer(size_t count);
  Status take_time(const Answer& answer, const Answer& before);

  const models::Model& model_;
  ThreadPool& pool_;
  RunnerOptions options_;
  kv::KvPages pages_;
  memory::Region scratch_;
  DeviceSide device_;
  BatchBuilder builder_;
  TraceSink* sink_ = nullptr;
  HiddenCapture capture_;
  GraphCache graphs_;
  std::vector<sched::SequenceId> sampled_;  // by the step launched last, by row of `sampled`
  int under_way_ = 0;
  size_t next_answer_ = 0;  // of device_.answers: the next launch's
  bool timing_ = false;
  StepTimes times_;
};

}  // namespace pelton::runtime
