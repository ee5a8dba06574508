// Steps on a device that chooses the tokens itself: while one runs the next is planned and queued
// behind it, and ids arrive a step late (docs/decisions/0013-steps-ahead.md). Everything here runs
// under the engine's lock but launching and waiting.
#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "engine/engine.h"

namespace pelton::engine {

bool Engine::chooses_on_device() const {
  return host_sampled_ == 0 && !observer_ && runner_->samples_on_device();
}

bool Engine::step_ahead(std::unique_lock<std::mutex>& lock) {
  sampled_.clear();
  if (!in_flight_) {
    plan_ahead_ = &scheduler_->plan();
    if (plan_ahead_->empty()) {
      scheduler_->commit(*plan_ahead_, {});
      return false;
    }
    if (Status status = take_off(*plan_ahead_, &flight_, lock); !status.ok()) {
      crash(status, true);
      return true;
    }
    in_flight_ = true;
  }
  const bool ahead = chooses_on_device();
  bool queued = false;
  if (ahead) {
    publish_all(scheduler_->commit_ahead(*plan_ahead_));
    plan_ahead_ = &scheduler_->plan();
    if (plan_ahead_->empty()) {
      scheduler_->commit(*plan_ahead_, {});
    } else if (Status status = take_off(*plan_ahead_, &next_flight_, lock); !status.ok()) {
      crash(status, true);
      return true;
    } else {
      queued = true;
    }
  }
  lock.unlock();
  auto arrived = runner_->wait();
  lock.lock();
  if (!arrived.ok()) {
    crash(arrived.status(), queued || !ahead);
    return true;
  }
  flight_.time.end = StepClock::now();
  next_flight_.time.begin = flight_.time.end;  // it waited in the queue until now
  note_times(flight_.plan, flight_.time);
  land(*arrived);
  publish_all(ahead ? scheduler_->resolve(sampled_) : scheduler_->commit(*plan_ahead_, sampled_));
  ++metrics_.steps;
  in_flight_ = queued;
  flight_.plan.sequences.clear();
  if (queued) std::swap(flight_, next_flight_);
  if (PELTON_DEBUG_CHECKS != 0) verify_integrity();
  return true;
}

// Queues a planned step.
Status Engine::take_off(const sched::StepPlan& plan, Flight* flight,
                        std::unique_lock<std::mutex>& lock) {
  flight->plan.sequences = plan.sequences;
  flight->plan.preempted = plan.preempted;
  flight->sampled.clear();
  requests_.clear();
  for (const sched::SequenceStep& step : plan.sequences) {
    if (!step.samples) continue;
    flight->sampled.push_back(step.sequence);
    request_token(step);
  }
  flight->time.begin = StepClock::now();
  lock.unlock();
  Status status = launch(plan);
  lock.lock();
  return status;
}

Status Engine::launch(const sched::StepPlan& plan) {
  for (;;) {
    try {
      return runner_->launch(plan, requests_);
    } catch (const InternalError& error) {
      if (!runner_->device_fault().ok()) return runner_->device_fault();
      if (!runner_->recover()) return internal_error(error.what());
    } catch (const std::bad_alloc&) {
      runner_->recover();
      return out_of_memory();
    }
  }
}

// What a device reads of a request beside its numbers. A token that is biased twice is left to the
// host, which adds one bias after the other.
void Engine::prepare_for_device(LiveRequest& live) const {
  const SamplingParams& params = live.request.sampling;
  for (const auto& [token, bias] : params.logit_bias) live.biases.push_back({token, bias});
  std::ranges::sort(live.biases, {}, &ops::TokenBias::token);
  if (std::ranges::adjacent_find(live.biases, {}, &ops::TokenBias::token) != live.biases.end()) {
    live.host_sampled = true;
    return;
  }
  const bool penalised = params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
                         params.frequency_penalty != 0.0f;
  int64_t distinct = 0;
  if (penalised) {
    distinct = std::min({std::ssize(live.request.prompt_ids) + int64_t{params.max_tokens},
                         int64_t{options_.max_model_len}, int64_t{config().vocab_size}});
    for (Completion& completion : live.completions)
      completion.history.emplace(static_cast<int32_t>(distinct));
  }
  const size_t suppressed = params.min_tokens > 0 ? live.stop_ids.size() : 0;
  if (!live.biases.empty() || suppressed > 0 || penalised) {
    live.list_bytes =
        live.completions.size() * runtime::SampleRequest::list_bytes(live.biases.size(), suppressed,
                                                                     static_cast<size_t>(distinct));
  }
}

void Engine::request_token(const sched::SequenceStep& step) {
  LiveRequest* live = owner_of(step.sequence);
  runtime::SampleRequest& request = requests_.emplace_back();
  ops::SampleRow& row = request.row;
  row.active = live != nullptr;
  if (live == nullptr) return;
  const SamplingParams& params = live->request.sampling;
  const int32_t index = completion_index(*live, step.sequence);
  const auto size = static_cast<size_t>(step.first_position) + step.tokens.size();
  const auto prompt = static_cast<size_t>(scheduler_->prompt_length(step.sequence));
  row.temperature = params.temperature;
  row.top_k = params.top_k;
  row.top_p = params.top_p;
  row.min_scaled = kernels::min_p_bound(params.min_p);
  row.repetition = params.repetition_penalty;
  row.presence = params.presence_penalty;
  row.frequency = params.frequency_penalty;
  row.seed = live->seed;
  row.sequence = static_cast<uint32_t>(index);
  row.position = static_cast<uint32_t>(size);
  request.biases = live->biases;
  if (size - prompt < static_cast<size_t>(params.min_tokens)) request.suppressed = live->stop_ids;
  Completion& completion = live->completions[static_cast<size_t>(index)];
  if (!completion.history) return;
  // An output token that this step computes may be pending: the device knows it.
  request.counts_input = size > prompt;
  completion.history->extend(scheduler_->tokens(step.sequence),
                             request.counts_input ? size - 1 : size, prompt);
  request.history = completion.history->counts();
}

// The ids of the step that ran, into sampled_.
void Engine::land(const runtime::SampledTokens& arrived) {
  for (size_t i = 0; i < flight_.sampled.size(); ++i) {
    LiveRequest* live = owner_of(flight_.sampled[i]);
    if (live == nullptr || live->open == 0) continue;
    if (arrived.states[i] != ops::SampleState::kSampled) {
      const char* why = arrived.states[i] == ops::SampleState::kNothingLeft
                            ? "logit bias and suppressed tokens leave no token to choose from"
                            : "the model's logits hold NaN or infinity, or are all -infinity";
      fail_request(*live, damaged_logits(internal_error(why)));
      continue;
    }
    sampled_.push_back({flight_.sampled[i], arrived.tokens[i]});
  }
}

// A step failed, and what was queued behind it with it. `planned`: the scheduler's plan is not
// committed.
void Engine::crash(const Status& status, bool planned) {
  const Status fault = runner_->device_fault();
  if (!fault.ok()) healthy_ = false;
  const Status& told = fault.ok() ? status : fault;
  for (Flight* flight : {&flight_, &next_flight_}) {
    for (const sched::SequenceStep& step : flight->plan.sequences) {
      LiveRequest* live = owner_of(step.sequence);
      if (live != nullptr && live->open > 0) fail_request(*live, told);
    }
    flight->plan.sequences.clear();
  }
  runner_->abandon();
  in_flight_ = false;
  if (planned) publish_all(scheduler_->commit(*plan_ahead_, {}));
  ++metrics_.steps;
  verify_integrity();
}

void Engine::publish_all(std::span<const sched::SequenceUpdate> updates) {
  for (const sched::SequenceUpdate& update : updates) publish_or_fail(update);
}

}  // namespace pelton::engine
