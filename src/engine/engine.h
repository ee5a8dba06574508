// The facade: load a model, submit requests, receive tokens, cancel, read metrics. Continuous
// batching over paged KV is the only path; one request is a batch of one.
//
// Threads: submit(), cancel() and metrics() may be called from any thread; step() and
// run_until_idle() from one at a time. submit() and cancel() wait while a step chooses its tokens,
// metrics() for nothing. Events are delivered on the stepping thread, outside the
// engine's lock, so a sink may submit or cancel.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/cpu_features.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/dry_breakers.h"
#include "engine/live_request.h"
#include "engine/loaded_model.h"
#include "engine/model_files.h"
#include "pelton/request.h"
#include "runtime/backend.h"
#include "runtime/memory_plan.h"
#include "runtime/runner.h"
#include "sched/scheduler.h"

namespace pelton::engine {

struct EngineOptions {
  int threads = 0;              // 0 = all this process may use
  std::optional<IsaLevel> isa;  // unset = the widest of this processor
  kernels::ActivationPrecision activations = kernels::ActivationPrecision::kInt8;
  int32_t max_model_len = 0;  // 0 = min(model, 4096)
  int32_t max_num_seqs = 16;
  int32_t max_num_batched_tokens = 512;
  int32_t max_logit_rows = 0;  // rows of a step that may ask for logits; at least max_num_seqs
  int32_t block_size = 32;     // tokens of a KV block
  int32_t num_kv_blocks = 0;   // 0 = max_num_seqs whole contexts, or what memory_limit leaves
  int32_t max_waiting = 256;
  kernels::KvFormat kv_cache_dtype = kernels::KvFormat::kF16;
  // What weights become at load on a device: kFp8Channels, kInt8Channels or kInt4Groups; embedding
  // and head, and matrices whose shape does not allow it, stay BF16.
  kernels::WeightLayout quantization = kernels::WeightLayout::kSource;
  // On a device: a file, or a folder for such, that keeps the weights as they are there: read where
  // it is there, else written. Empty: neither.
  std::string packed_cache;
  // Same bits whatever the batch on a device too, by its kernels that have one order of sums.
  bool invariant = false;
  size_t memory_limit = 0;  // bytes of anonymous memory (of the device's, on a device); 0 = none
  // On a GPU: `cuda` plans for one, and load() opens it unless `backend` is given. Then
  // activations say how block-quantized weights are kept: int8 = BF16, f32 = F32.
  bool cuda = false;
  int cuda_index = 0;
  runtime::LibraryOptions cuda_libraries = {};
  std::shared_ptr<runtime::Backend> backend = {};
  bool enforce_eager = false;           // on a GPU: no captured steps
  double gpu_memory_utilization = 0.9;  // share of the device's free memory that may be taken
  bool enable_prefix_caching = true;
  bool static_batching = false;
};

// Opens the GPU that the options ask for, unless `backend` is there already; nothing on the CPU.
Status open_backend(EngineOptions* options);

// Works out what load() will take, from headers alone; also fills the options' defaults.
// kInvalidArgument and kResourceExhausted say what does not fit and by how much.
Result<runtime::MemoryPlan> plan_memory(const ModelFiles& files, EngineOptions* options);

struct EngineMetrics {
  sched::SchedulerStats scheduler;
  int64_t steps = 0;
  int64_t requests = 0;  // accepted = finished + cancelled + failed + still running
  int64_t finished = 0;  // by stop or length
  int64_t cancelled = 0;
  int64_t failed = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t graph_replays = 0;  // steps that ran as one captured launch
  runtime::StepTimes step_times;
};

class Engine {
 public:
  using EventSink = std::function<void(const TokenEvent&)>;
  // Raw logits of one row: the request, the completion's index, the row's position, [vocab_size].
  using LogitsObserver = std::function<void(RequestId, int32_t, int32_t, std::span<const float>)>;

  static Result<std::unique_ptr<Engine>> load(std::unique_ptr<ModelFiles> files,
                                              const EngineOptions& options);
  // An engine of its own cache and threads over weights that are in memory already.
  // `options.max_model_len` must be the one the model was loaded with; the engine runs where the
  // weights are.
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<const LoadedModel> loaded,
                                                const EngineOptions& options);

  // Checks the request and queues it. Errors: kInvalidArgument naming the field, kResourceExhausted
  // when the queue is full or memory is short. After success `sink` gets events until each
  // completion has had its finish.
  Result<RequestId> submit(Request request, EventSink sink);
  // Ends the request at the beginning of the next step, at the end of one that runs now; unknown or
  // ended ids are ignored. Takes no memory.
  void cancel(RequestId id);

  // Runs one step; false when there was nothing to do. On a device the next one may be under way
  // when it returns.
  bool step();
  void run_until_idle();

  // False after damage beyond one request: a cut weight file, broken invariants.
  bool healthy() const { return healthy_.load(); }
  // As of the last event that was delivered or request that was accepted.
  EngineMetrics metrics() const;

  std::shared_ptr<const LoadedModel> loaded() const { return loaded_; }
  const ModelFiles& files() const { return loaded_->files(); }
  const models::ModelConfig& config() const { return loaded_->model().config(); }
  std::shared_ptr<const text::Tokenizer> tokenizer() const { return loaded_->tokenizer(); }
  const runtime::MemoryPlan& plan() const { return plan_; }
  const EngineOptions& options() const { return options_; }
  IsaLevel isa() const { return *options_.isa; }
  ThreadPool& pool() { return *pool_; }
  // Things a user should know but that stop nothing: tensors the model does not use, ...
  const std::vector<std::string>& warnings() const { return loaded_->warnings(); }

  // Why captured steps were given up; empty while they are in use. On the stepping thread.
  const std::string& graph_fault() const { return runner_->graphs().fault(); }

  // Times steps on a device from here on, in EngineMetrics::step_times.
  void time_steps(bool on) { runner_->set_timing(on); }

  // For diagnosis, set while idle: every following step shows its intermediates, or the logits it
  // computed.
  void set_trace_sink(TraceSink* sink) { runner_->set_trace_sink(sink); }
  void set_logits_observer(LogitsObserver observer) { observer_ = std::move(observer); }

 private:
  Engine() = default;
  Status initialise(std::shared_ptr<const LoadedModel> loaded, std::unique_ptr<ThreadPool> pool,
                    const runtime::MemoryPlan& plan);

  Result<RequestId> accept(Request request, EventSink sink);
  Result<std::unique_ptr<LiveRequest>> make_live(Request request, EventSink sink);
  LiveRequest* owner_of(sched::SequenceId sequence);
  int32_t completion_index(const LiveRequest& live, sched::SequenceId sequence) const;

  // One row to sample.
  struct Draw {
    LiveRequest* live = nullptr;
    sched::SequenceId sequence = 0;
    int32_t index = 0;
    std::span<float> logits;
    Result<sampling::SampledRow> result = sampling::SampledRow{};
  };

  // A step whose tokens are chosen on the device.
  struct Flight {
    sched::StepPlan plan;  // a copy whose tokens and tables are gone by the time it has run
    std::vector<sched::SequenceId> sampled;  // in plan order
    StepTime time = {};
  };

  // engine_ahead.cc: steps on a device, the next one planned while one runs.
  bool chooses_on_device() const;
  void prepare_for_device(LiveRequest& live) const;
  bool step_ahead(std::unique_lock<std::mutex>& lock);
  Status take_off(const sched::StepPlan& plan, Flight* flight, std::unique_lock<std::mutex>& lock);
  Status launch(const sched::StepPlan& plan);
  void request_token(const sched::SequenceStep& step);
  void land(const runtime::SampledTokens& arrived);
  void crash(const Status& status, bool planned);
  void publish_all(std::span<const sched::SequenceUpdate> updates);
  bool step_alone(std::unique_lock<std::mutex>& lock);

  // The parts of a step, all under the lock but the forward itself.
  bool pools(const sched::StepPlan& plan);
  Status forward(const sched::StepPlan& plan, bool keep_hidden, Tensor* logits);
  void note_times(const sched::StepPlan& plan, const StepTime& time);
  void observe(const sched::StepPlan& plan, const Tensor& logits);
  Status choose_tokens(const sched::StepPlan& plan, const Tensor& logits);
  void draw_tokens(const sched::StepPlan& plan, const Tensor& logits);
  void settle(const sched::StepPlan& plan, const Tensor& logits, Status status);
  void draw(Draw& d, sampling::SamplerScratch& scratch) const;
  void fold(Draw& d);
  void take_prompt_logprobs(LiveRequest& live, const sched::SequenceStep& step, size_t index,
                            const Tensor& logits);
  void pool_rows(LiveRequest& live, const sched::SequenceStep& step, size_t index);
  static std::vector<float> embedding_of(const LiveRequest& live);
  void advance_beams(LiveRequest& live, const sched::StepPlan& plan, const Tensor& logits);
  void publish(const sched::SequenceUpdate& update);
  void publish_or_fail(const sched::SequenceUpdate& update);
  void end_beams(LiveRequest& live);
  void fail_plan(const sched::StepPlan& plan, const Status& status);
  void fail_request(LiveRequest& live, const Status& status);
  Status damaged_logits(const Status& status) const;
  void reserve_events();
  void end_cancelled();
  void end_request(LiveRequest& live, FinishReason reason, const Status& error);
  TokenEvent& queue_event(LiveRequest& live, int32_t index);
  void close(LiveRequest& live, TokenEvent& event, FinishReason reason);
  void verify_integrity();
  void deliver(std::unique_lock<std::mutex>& lock);
  void show_metrics();

  EngineOptions options_;
  std::shared_ptr<const LoadedModel> loaded_;
  std::unique_ptr<DryBreakers> dry_breakers_;
  std::unique_ptr<ThreadPool> pool_;
  runtime::MemoryPlan plan_;
  std::unique_ptr<runtime::Runner> runner_;

  mutable std::mutex mutex_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::unordered_map<RequestId, std::unique_ptr<LiveRequest>> live_;
  std::unordered_map<sched::SequenceId, LiveRequest*> owners_;
  RequestId next_id_ = 1;
  std::vector<Draw> draws_;
  std::vector<LiveRequest*> beam_groups_;
  std::vector<sampling::SamplerScratch> sampler_scratch_;  // one a thread
  std::vector<sched::SampledToken> sampled_;
  std::vector<runtime::SampleRequest> requests_;
  Flight flight_;       // the step under way, where there is one
  Flight next_flight_;  // the one queued behind it
  bool in_flight_ = false;
  const sched::StepPlan* plan_ahead_ = nullptr;  // the scheduler's, of the step queued last
  int64_t host_sampled_ = 0;  // live requests whose tokens are chosen on the host
  size_t list_bytes_ = 0;     // of a step's inputs that live requests hold
  std::vector<TokenEvent> events_;
  bool cancel_asked_ = false;  // some live request is `cancelled`
  // Where deliver() works; they have room before a step begins.
  std::vector<TokenEvent> delivered_;
  std::vector<LiveRequest*> targets_;
  std::vector<std::unique_ptr<LiveRequest>> closed_;
  EngineMetrics metrics_;
  mutable std::mutex shown_mutex_;  // of what follows; held for a copy
  EngineMetrics shown_metrics_;     // whole, for metrics()
  std::atomic<bool> healthy_{true};
  LogitsObserver observer_;
};

}  // namespace pelton::engine
