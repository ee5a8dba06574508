#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <random>
#include <utility>

namespace pelton::engine {
namespace {

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// Whether a request wants of its logits what a device does not know.
bool needs_host_sampling(const SamplingParams& p) {
  return p.dry_multiplier > 0.0f || p.typical_p < 1.0f || p.logprobs >= 0 ||
         p.prompt_logprobs >= 0 || p.num_beams > 1;
}

// A pooling request runs as one for a single token, whose row is that of the prompt's end; a mean
// wants the rows before it too.
SamplingParams pooling_params(Pooling pooling) {
  SamplingParams params;
  params.max_tokens = 1;
  params.temperature = 0.0f;
  params.ignore_eos = true;
  params.seed = 0;
  if (pooling == Pooling::kMean) params.prompt_logprobs = 0;
  return params;
}

// An exception that leaves a step could not even be told to its requests: what the scheduler holds
// may be half of a step.
struct UnhealthyUnlessDone {
  explicit UnhealthyUnlessDone(std::atomic<bool>& health) : healthy(health) {}
  ~UnhealthyUnlessDone() {
    if (!done) healthy = false;
  }
  UnhealthyUnlessDone(const UnhealthyUnlessDone&) = delete;
  UnhealthyUnlessDone& operator=(const UnhealthyUnlessDone&) = delete;

  std::atomic<bool>& healthy;
  bool done = false;
};

}  // namespace

Result<std::unique_ptr<LiveRequest>> Engine::make_live(Request request, EventSink sink) {
  const int32_t vocab_size = config().vocab_size;
  if (request.pooling != Pooling::kNone) request.sampling = pooling_params(request.pooling);
  if (Status s = validate(request.sampling, vocab_size, options_.max_model_len); !s.ok()) return s;
  for (size_t i = 0; i < request.prompt_ids.size(); ++i) {
    const int32_t id = request.prompt_ids[i];
    if (id < 0 || id >= vocab_size) {
      return invalid_argument(
          fmt::format("prompt_ids[{}] is {}, outside the vocabulary of {}", i, id, vocab_size));
    }
  }
  SamplingParams& sampling = request.sampling;
  if (!sampling.seed) sampling.seed = random_seed();
  const uint64_t seed = *sampling.seed;
  std::vector<int32_t> breakers;
  if (sampling.dry_multiplier > 0.0f) breakers = dry_breakers_->ids(sampling.dry_sequence_breakers);
  auto live = std::make_unique<LiveRequest>(sampling::Sampler(sampling, std::move(breakers)), seed);
  if (!sampling.ignore_eos) live->stop_ids = loaded_->end_ids();
  live->stop_ids.insert(live->stop_ids.end(), sampling.stop_token_ids.begin(),
                        sampling.stop_token_ids.end());
  if (sampling.num_beams > 1) {
    const auto prompt_length = static_cast<int32_t>(request.prompt_ids.size());
    const int32_t room = std::min(sampling.max_tokens, options_.max_model_len - prompt_length);
    live->beams.emplace(sampling, live->stop_ids, std::max(1, room));
  }
  if (sampling.prompt_logprobs >= 0 && request.pooling == Pooling::kNone)
    live->prompt_logprobs.resize(request.prompt_ids.size());
  live->sink = std::move(sink);
  for (int32_t i = 0; i < sampling.n; ++i) {
    live->completions.emplace_back(StopText(loaded_->tokenizer(), sampling.stop,
                                            sampling.include_stop_str_in_output,
                                            sampling.skip_special_tokens));
  }
  live->open = sampling.n;
  live->host_sampled = needs_host_sampling(sampling) || request.pooling != Pooling::kNone;
  live->request = std::move(request);
  if (!live->host_sampled && options_.backend != nullptr) prepare_for_device(*live);
  return live;
}

Result<RequestId> Engine::submit(Request request, EventSink sink) {
  try {
    return accept(std::move(request), std::move(sink));
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

Result<RequestId> Engine::accept(Request request, EventSink sink) {
  auto made = make_live(std::move(request), std::move(sink));
  if (!made.ok()) return made.status();
  std::unique_ptr<LiveRequest> live = std::move(made).value();
  const std::lock_guard lock(mutex_);
  if (!healthy()) return internal_error("the engine is damaged and takes no more requests");
  if (list_bytes_ + live->list_bytes > runner_->list_room()) {
    live->host_sampled = true;
    live->list_bytes = 0;
  }
  live->id = next_id_;
  // The scheduler runs beams as one group, however many hypotheses are returned in the end.
  Request scheduled = live->request;
  if (live->beams) scheduled.sampling.n = 1;
  auto sequences = scheduler_->add(live->id, scheduled);
  if (!sequences.ok()) return sequences.status();
  ++next_id_;
  live->sequences = std::move(sequences).value();
  live->timeline.accepted = StepClock::now();
  const RequestId id = live->id;
  const auto prompt_tokens = static_cast<int64_t>(live->request.prompt_ids.size());
  const bool host_sampled = live->host_sampled;
  const size_t list_bytes = live->list_bytes;
  try {
    live->reached.resize(live->sequences.size());
    for (size_t i = 0; i < live->sequences.size(); ++i) {
      owners_[live->sequences[i]] = live.get();
      if (!live->beams) live->completions[i].sequence = live->sequences[i];
    }
    live_[id] = std::move(live);
  } catch (const std::bad_alloc&) {
    // `live` still owns the request: the table takes it last.
    for (sched::SequenceId sequence : live->sequences) owners_.erase(sequence);
    scheduler_->cancel(id);
    return out_of_memory();
  }
  host_sampled_ += host_sampled ? 1 : 0;
  list_bytes_ += list_bytes;
  ++metrics_.requests;
  metrics_.prompt_tokens += prompt_tokens;
  show_metrics();
  return id;
}

void Engine::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  found->second->cancelled = true;
  cancel_asked_ = true;
}

// Ends what cancel() asked for, outside of plan and commit.
void Engine::end_cancelled() {
  if (!cancel_asked_) return;
  reserve_events();
  for (auto& [id, live] : live_) {
    if (!live->cancelled || live->open == 0) continue;
    scheduler_->cancel(id);
    end_request(*live, FinishReason::kCancelled, {});
  }
  cancel_asked_ = false;
}

LiveRequest* Engine::owner_of(sched::SequenceId sequence) {
  const auto found = owners_.find(sequence);
  return found == owners_.end() ? nullptr : found->second;
}

bool Engine::pools(const sched::StepPlan& plan) {
  return std::any_of(plan.sequences.begin(), plan.sequences.end(), [&](const auto& step) {
    const LiveRequest* live = owner_of(step.sequence);
    return live != nullptr && live->request.pooling != Pooling::kNone;
  });
}

Status Engine::forward(const sched::StepPlan& plan, bool keep_hidden, Tensor* logits) {
  try {
    auto result = runner_->run(plan, keep_hidden);
    if (result.ok()) {
      *logits = *result;
    } else if (runner_->device_fault().ok()) {
      return result.status();
    }
  } catch (const InternalError& error) {
    // A device that failed in the middle of a forward is told below, by its own words.
    if (runner_->device_fault().ok()) return internal_error(error.what());
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
  if (Status fault = runner_->device_fault(); !fault.ok()) {
    healthy_ = false;
    return fault;
  }
  if (truncated_while_mapped()) {
    healthy_ = false;
    return data_loss(files().path() + ": the file became shorter while the model was in use");
  }
  return {};
}

bool Engine::step() {
  std::unique_lock lock(mutex_);
  reserve_events();
  end_cancelled();
  UnhealthyUnlessDone guard(healthy_);
  const bool worked = in_flight_ || chooses_on_device() ? step_ahead(lock) : step_alone(lock);
  guard.done = true;
  deliver(lock);
  return worked;
}

bool Engine::step_alone(std::unique_lock<std::mutex>& lock) {
  const sched::StepPlan& plan = scheduler_->plan();
  const bool worked = !plan.empty();
  Tensor logits;
  Status status;
  if (worked) {
    const bool keep_hidden = pools(plan);
    lock.unlock();
    StepTime time{.begin = StepClock::now(), .end = {}};
    status = forward(plan, keep_hidden, &logits);
    time.end = StepClock::now();
    lock.lock();
    note_times(plan, time);
  }
  settle(plan, logits, std::move(status));
  return worked;
}

void Engine::note_times(const sched::StepPlan& plan, const StepTime& time) {
  for (const sched::SequenceId sequence : plan.preempted) {
    if (LiveRequest* live = owner_of(sequence)) live->timeline.note_preemption();
  }
  for (const sched::SequenceStep& step : plan.sequences) {
    LiveRequest* live = owner_of(step.sequence);
    if (live == nullptr || live->open == 0) continue;
    const auto place = static_cast<size_t>(completion_index(*live, step.sequence));
    live->timeline.note_rows(step, static_cast<int32_t>(live->request.prompt_ids.size()), time,
                             &live->reached[place]);
  }
}

// Folds the outcome of a step back: tokens, updates, errors.
void Engine::settle(const sched::StepPlan& plan, const Tensor& logits, Status status) {
  sampled_.clear();
  if (plan.empty()) {
    scheduler_->commit(plan, {});
    return;
  }
  if (status.ok()) status = choose_tokens(plan, logits);
  if (!status.ok()) fail_plan(plan, status);
  for (const sched::SequenceUpdate& update : scheduler_->commit(plan, sampled_))
    publish_or_fail(update);
  ++metrics_.steps;
  if (PELTON_DEBUG_CHECKS != 0 || !status.ok()) verify_integrity();
}

Status Engine::choose_tokens(const sched::StepPlan& plan, const Tensor& logits) {
  try {
    observe(plan, logits);
    draw_tokens(plan, logits);
    return {};
  } catch (const std::bad_alloc&) {
    sampled_.clear();
    return out_of_memory();
  }
}

void Engine::publish_or_fail(const sched::SequenceUpdate& update) {
  try {
    publish(update);
  } catch (const std::bad_alloc&) {
    LiveRequest* live = owner_of(update.sequence);
    if (live != nullptr && live->open > 0) fail_request(*live, out_of_memory());
  }
}

// Room for one event of each completion and one more that ends it with an error, so that telling
// of a lack of memory needs none.
void Engine::reserve_events() {
  size_t events = events_.size();
  for (const auto& [id, live] : live_) events += 2 * static_cast<size_t>(live->open);
  events_.reserve(events);
  delivered_.reserve(events);
  targets_.reserve(events);
  closed_.reserve(live_.size());
}

void Engine::run_until_idle() {
  while (step()) {
  }
}

void Engine::verify_integrity() {
  Status status;
  try {
    status = scheduler_->check_integrity();
  } catch (const std::bad_alloc&) {
    return;  // the check needs memory of its own; the next step makes it up
  }
  if (status.ok()) return;
  healthy_ = false;
  for (auto& [id, live] : live_) fail_request(*live, status);
}

EngineMetrics Engine::metrics() const {
  const std::lock_guard lock(shown_mutex_);
  return shown_metrics_;
}

// Under the lock; takes no memory.
void Engine::show_metrics() {
  metrics_.scheduler = scheduler_->stats();
  const std::lock_guard lock(shown_mutex_);
  shown_metrics_ = metrics_;
}

void Engine::deliver(std::unique_lock<std::mutex>& lock) {
  // The runner's own figures change while the lock is free: they are read on this thread alone.
  metrics_.graph_replays = runner_->graphs().replays();
  metrics_.step_times = runner_->times();
  // Sinks run unlocked: they may submit or cancel. Ended requests leave the table only after their
  // last event was handed over, so each sink outlives its calls.
  for (end_cancelled(); !events_.empty(); end_cancelled()) {
    delivered_.swap(events_);
    for (const TokenEvent& event : delivered_) targets_.push_back(live_.at(event.request).get());
    for (const TokenEvent& event : delivered_) {
      const auto found = live_.find(event.request);
      if (found == live_.end() || found->second->open > 0) continue;
      for (sched::SequenceId sequence : found->second->sequences) owners_.erase(sequence);
      host_sampled_ -= found->second->host_sampled ? 1 : 0;
      list_bytes_ -= found->second->list_bytes;
      closed_.push_back(std::move(found->second));
      live_.erase(found);
    }
    show_metrics();  // before anybody can hear of what it counts
    lock.unlock();
    std::exception_ptr thrown;
    for (size_t i = 0; i < delivered_.size(); ++i) {
      try {
        if (targets_[i]->sink) targets_[i]->sink(delivered_[i]);
      } catch (...) {  // kept until the others have their events
        thrown = std::current_exception();
      }
    }
    closed_.clear();
    lock.lock();
    delivered_.clear();
    targets_.clear();
    if (thrown) std::rethrow_exception(thrown);
  }
  show_metrics();
}

}  // namespace pelton::engine
