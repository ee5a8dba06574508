#include "runtime/runner.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace pelton::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Runner::Runner(const models::Model& model, ThreadPool& pool, const RunnerOptions& options,
               kv::KvPages pages, BatchBuilder builder)
    : model_(model),
      pool_(pool),
      options_(options),
      pages_(std::move(pages)),
      builder_(std::move(builder)) {}

Runner::~Runner() {
  if (under_way_ > 0) abandon();
}

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
  auto inputs = memory::Mirror::create(*device, plan.inputs);
  if (!inputs.ok()) return inputs.status().with_context("step inputs");
  BatchBuilder builder(limits, inputs->host());
  std::unique_ptr<Runner> runner(
      new Runner(model, pool, options, std::move(pages).value(), std::move(builder)));
  if (Status s = runner->take_device_side(plan, std::move(inputs).value()); !s.ok()) return s;
  return runner;
}

Status Runner::take_device_side(const MemoryPlan& plan, memory::Mirror inputs) {
  using Kind = memory::DeviceRegion::Kind;
  device::Device& device = options_.backend->device();
  device_.inputs = std::move(inputs);
  struct Part {
    memory::DeviceRegion* region;
    size_t bytes;
    Kind kind;
    const char* name;
  };
  const size_t logits = logit_bytes(options_.shape, model_.config().vocab_size);
  for (const Part& part : {Part{&device_.scratch, plan.scratch, Kind::kDevice, "step scratch"},
                           Part{&device_.logits, logits, Kind::kPinnedHost, "logits"},
                           Part{&device_.sampled, plan.sampled, Kind::kDevice, "sampled tokens"}}) {
    auto region = memory::DeviceRegion::allocate(device, part.bytes, part.kind);
    if (!region.ok()) return region.status().with_context(part.name);
    *part.region = std::move(region).value();
  }
  for (Answer& answer : device_.answers) {
    auto pinned = memory::DeviceRegion::allocate(device, plan.sampled, Kind::kPinnedHost);
    if (!pinned.ok()) return pinned.status().with_context("sampled tokens");
    answer.pinned = std::move(pinned).value();
    for (auto* event : {&answer.begun, &answer.arrived}) {
      auto made = device.create_event();
      if (!made.ok()) return made.status();
      *event = std::move(made).value();
    }
  }
  const EngineShape& shape = options_.shape;
  // Rows of padding have logits too.
  const bool room = shape.max_logit_rows >= shape.max_num_seqs;
  graphs_ = GraphCache(shape.graphs && room ? shape.max_num_seqs : 0);
  sampled_.reserve(static_cast<size_t>(shape.max_num_seqs));
  return {};
}

bool Runner::HiddenCapture::wants(int layer, std::string_view name) const {
  return (layer < 0 && name == "final_norm") || (next != nullptr && next->wants(layer, name));
}

void Runner::HiddenCapture::on_tensor(int layer, std::string_view name, const Tensor& tensor) {
  if (layer < 0 && name == "final_norm") {
    const auto columns = static_cast<size_t>(tensor.row_elements());
    values.resize(static_cast<size_t>(tensor.num_rows()) * columns);
    for (int64_t t = 0; t < tensor.num_rows(); ++t)
      std::copy_n(tensor.row_f32(t), columns, values.data() + static_cast<size_t>(t) * columns);
    hidden = tensor;
    hidden.data = values.data();
    hidden.row_stride = tensor.row_elements();
  }
  if (next != nullptr && next->wants(layer, name)) next->on_tensor(layer, name, tensor);
}

ops::StepContext Runner::context(memory::StepArena& arena, const ops::DeviceStep* device,
                                 TraceSink* sink) const {
  return {.arena = arena,
          .pool = pool_,
          .cpu = ops::kernels_of(options_.isa),
          .activations = options_.activations,
          .sink = sink,
          .device = device};
}

ops::DeviceStep Runner::device_step() const {
  return {.caps = options_.backend->device().caps(),
          .kernels = options_.backend->kernels(),
          .stream = &options_.backend->stream(),
          .inputs = &device_.inputs,
          .zeroed = options_.backend->zeroed(),
          .max_context = options_.shape.max_model_len,
          .invariant = options_.shape.invariant,
          .has_cublaslt = options_.backend->cublaslt() != nullptr,
          .cublaslt = options_.backend->cublaslt()};
}

Result<Tensor> Runner::run(const sched::StepPlan& plan, bool keep_hidden) {
  capture_.next = sink_;
  TraceSink* sink = keep_hidden ? &capture_ : sink_;
  if (options_.backend != nullptr) return run_on_device(plan, sink);
  for (const sched::BlockCopy& copy : plan.copies) {
    if (Status s = pages_.copy_block(copy.source, copy.target); !s.ok()) return s;
  }
  const nn::StepBatch batch = builder_.build(plan);
  memory::StepArena arena(scratch_.bytes());
  ops::StepContext step = context(arena, nullptr, sink);
  return model_.forward(batch, pages_, step);
}

Result<Tensor> Runner::run_on_device(const sched::StepPlan& plan, TraceSink* sink) {
  check(under_way_ == 0, "logits come to the host when no other step is under way");
  device::Stream& stream = options_.backend->stream();
  for (const sched::BlockCopy& copy : plan.copies) {
    if (Status s = pages_.copy_block(copy.source, copy.target, &stream); !s.ok()) return s;
  }
  const nn::StepBatch batch = builder_.build(plan);
  if (Status s = device_.inputs.upload(stream, builder_.used_bytes()); !s.ok()) return s;
  memory::StepArena arena(device_.scratch.bytes());
  const ops::DeviceStep device = device_step();
  ops::StepContext step = context(arena, &device, sink);
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

bool Runner::samples_on_device() const {
  return options_.backend != nullptr && sink_ == nullptr &&
         ops::can_sample(options_.backend->kernels(), model_.config().vocab_size);
}

Status Runner::launch(const sched::StepPlan& plan, std::span<const SampleRequest> requests) {
  check(samples_on_device() && under_way_ < kMostUnderWay, "no step can be launched");
  device::Stream& stream = options_.backend->stream();
  if (timing_) {
    const auto start = Clock::now();
    if (Status s = stream.record(*device_.answers[next_answer_].begun); !s.ok()) return s;
    times_.timing += seconds_since(start);
  }
  for (const sched::BlockCopy& copy : plan.copies) {
    if (Status s = pages_.copy_block(copy.source, copy.target, &stream); !s.ok()) return s;
  }
  nn::StepBatch batch = builder_.build(plan);
  name_pending(plan);
  check(batch.logit_rows.size() == requests.size(), "one request for each row of logits");
  const auto rows = static_cast<int32_t>(batch.num_tokens());
  const bool decodes = rows == std::ssize(plan.sequences) && rows == std::ssize(requests);
  const int32_t bucket = decodes ? graphs_.bucket(rows) : 0;
  if (bucket > 0) batch = builder_.pad(bucket);
  const std::span<const ops::SampleRow> asked =
      builder_.put_requests(requests, device_.inputs.shift());
  if (Status s = device_.inputs.upload(stream, builder_.used_bytes()); !s.ok()) return s;
  const auto queue = [&] { return queue_sampled(batch, asked); };
  if (Status s = bucket > 0 ? graphs_.run(bucket, stream, queue) : queue(); !s.ok()) return s;
  if (Status s = queue_answer(requests.size()); !s.ok()) return s;
  sampled_.clear();
  for (const sched::SequenceStep& step : plan.sequences) {
    if (step.samples) sampled_.push_back(step.sequence);
  }
  return {};
}

// Everything between the inputs and the tokens; captured as a whole.
Status Runner::queue_sampled(const nn::StepBatch& batch, std::span<const ops::SampleRow> requests) {
  memory::StepArena arena(device_.scratch.bytes());
  const ops::DeviceStep device = device_step();
  ops::StepContext step = context(arena, &device, nullptr);
  auto* tokens = reinterpret_cast<int32_t*>(device_.sampled.bytes().data());
  if (Status s = ops::take_tokens(step, batch.token_ids, tokens); !s.ok()) return s;
  const Tensor logits = model_.forward(batch, pages_, step);
  if (requests.empty()) return {};
  return ops::sample(
      step, {.logits = logits,
             .requests = requests,
             .tokens = tokens,
             .states = reinterpret_cast<ops::SampleState*>(tokens + options_.shape.max_num_seqs)});
}

Status Runner::queue_answer(size_t count) {
  device::Stream& stream = options_.backend->stream();
  Answer& answer = device_.answers[next_answer_];
  const memory::DeviceRegion& sampled = device_.sampled;
  if (Status s = stream.copy_to_host(answer.pinned.bytes().data(), sampled.bytes().data(),
                                     count == 0 ? 0 : sampled.size());
      !s.ok()) {
    return s;
  }
  if (Status s = stream.record(*answer.arrived); !s.ok()) return s;
  answer.count = count;
  next_answer_ = (next_answer_ + 1) % device_.answers.size();
  ++under_way_;
  return {};
}

// A pending token is the last of its sequence; sequences mostly keep their order from step to step.
void Runner::name_pending(const sched::StepPlan& plan) {
  size_t hint = 0;
  int32_t row = -1;
  for (const sched::SequenceStep& step : plan.sequences) {
    row += static_cast<int32_t>(step.tokens.size());
    if (step.tokens.back() != sched::kPendingToken) continue;
    if (hint >= sampled_.size() || sampled_[hint] != step.sequence) {
      hint = static_cast<size_t>(std::ranges::find(sampled_, step.sequence) - sampled_.begin());
      check(hint < sampled_.size(), "a pending token was sampled by the step before");
    }
    builder_.take_sampled(row, static_cast<int32_t>(hint++));
  }
}

bool Runner::recover() {
  return options_.backend != nullptr && graphs_.recover(options_.backend->stream());
}

Result<SampledTokens> Runner::wait() {
  check(under_way_ > 0, "a step is under way");
  const size_t count = device_.answers.size();
  const auto oldest = (next_answer_ + count - static_cast<size_t>(under_way_)) % count;
  --under_way_;
  const Answer& answer = device_.answers[oldest];
  const auto start = Clock::now();
  if (Status s = answer.arrived->finish(); !s.ok()) return s;
  times_.waited += seconds_since(start);
  if (Status s = device_fault(); !s.ok()) return s;
  if (timing_) {
    const Answer& before = device_.answers[(oldest + count - 1) % count];
    if (Status s = take_time(answer, before); !s.ok()) return s;
  }
  ++times_.steps;
  const auto* tokens = reinterpret_cast<const int32_t*>(answer.pinned.bytes().data());
  const auto* states =
      reinterpret_cast<const ops::SampleState*>(tokens + options_.shape.max_num_seqs);
  return SampledTokens{{tokens, answer.count}, {states, answer.count}};
}

void Runner::set_timing(bool on) {
  timing_ = on;
  times_ = {};
}

Status Runner::take_time(const Answer& answer, const Answer& before) {
  if (times_.steps == 0) return {};
  const auto start = Clock::now();
  const auto span = answer.arrived->milliseconds_since(*before.arrived);
  if (!span.ok()) return span.status();
  const auto idle = answer.begun->milliseconds_since(*before.arrived);
  if (!idle.ok()) return idle.status();
  times_.span += 1e-3 * static_cast<double>(*span);
  times_.idle += 1e-3 * std::max(0.0, static_cast<double>(*idle));
  times_.timing += seconds_since(start);
  return {};
}

void Runner::abandon() {
  static_cast<void>(options_.backend->stream().finish());
  under_way_ = 0;
  sampled_.clear();
}

Status Runner::device_fault() const {
  return options_.backend == nullptr ? Status() : options_.backend->device().fault();
}

}  // namespace pelton::runtime
