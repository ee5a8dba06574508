#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <random>

namespace pelton::engine {
namespace {

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// Ids whose text holds one of the DRY stage's sequence breakers.
std::vector<int32_t> dry_breaker_ids(const SamplingParams& params,
                                     const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  if (params.dry_multiplier <= 0.0f) return ids;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string text = tokenizer.decode({id}, false);
    const bool breaks = std::any_of(
        params.dry_sequence_breakers.begin(), params.dry_sequence_breakers.end(),
        [&](const std::string& b) { return !b.empty() && text.find(b) != std::string::npos; });
    if (breaks) ids.push_back(id);
  }
  return ids;
}

}  // namespace

Result<std::unique_ptr<LiveRequest>> Engine::make_live(Request request, EventSink sink) {
  const int32_t vocab_size = config().vocab_size;
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
  auto live = std::unique_ptr<LiveRequest>(new LiveRequest{
      .request = {},
      .sampler = sampling::Sampler(sampling, dry_breaker_ids(sampling, *loaded_->tokenizer())),
      .seed = seed});
  if (!sampling.ignore_eos) live->stop_ids = loaded_->end_ids();
  live->stop_ids.insert(live->stop_ids.end(), sampling.stop_token_ids.begin(),
                        sampling.stop_token_ids.end());
  if (sampling.num_beams > 1) {
    const auto prompt_length = static_cast<int32_t>(request.prompt_ids.size());
    const int32_t room = std::min(sampling.max_tokens, options_.max_model_len - prompt_length);
    live->beams.emplace(sampling, live->stop_ids, std::max(1, room));
  }
  if (sampling.prompt_logprobs >= 0) live->prompt_logprobs.resize(request.prompt_ids.size());
  live->sink = std::move(sink);
  for (int32_t i = 0; i < sampling.n; ++i) {
    live->completions.push_back(
        {.text = StopText(loaded_->tokenizer(), sampling.stop, sampling.include_stop_str_in_output,
                          /*skip_special_tokens=*/true)});
  }
  live->open = sampling.n;
  live->request = std::move(request);
  return live;
}

Result<RequestId> Engine::submit(Request request, EventSink sink) {
  auto made = make_live(std::move(request), std::move(sink));
  if (!made.ok()) return made.status();
  std::unique_ptr<LiveRequest> live = std::move(made).value();
  const std::lock_guard lock(mutex_);
  if (!healthy()) return internal_error("the engine is damaged and takes no more requests");
  live->id = next_id_;
  // The scheduler runs beams as one group, however many hypotheses are returned in the end.
  Request scheduled = live->request;
  if (live->beams) scheduled.sampling.n = 1;
  auto sequences = scheduler_->add(live->id, scheduled);
  if (!sequences.ok()) return sequences.status();
  ++next_id_;
  live->sequences = std::move(sequences).value();
  for (size_t i = 0; i < live->sequences.size(); ++i) {
    owners_[live->sequences[i]] = live.get();
    if (!live->beams) live->completions[i].sequence = live->sequences[i];
  }
  ++metrics_.requests;
  metrics_.prompt_tokens += static_cast<int64_t>(live->request.prompt_ids.size());
  const RequestId id = live->id;
  live_[id] = std::move(live);
  return id;
}

void Engine::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  scheduler_->cancel(id);
  end_request(*found->second, FinishReason::kCancelled, {});
}

LiveRequest* Engine::owner_of(sched::SequenceId sequence) {
  const auto found = owners_.find(sequence);
  return found == owners_.end() ? nullptr : found->second;
}

Status Engine::forward(const sched::StepPlan& plan, Tensor* logits) {
  try {
    *logits = runner_->run(plan);
  } catch (const InternalError& error) {
    return internal_error(error.what());
  } catch (const std::bad_alloc&) {
    return resource_exhausted("out of memory in a step");
  }
  if (truncated_while_mapped()) {
    healthy_ = false;
    return data_loss(files().path() + ": the file became shorter while the model was in use");
  }
  return {};
}

bool Engine::step() {
  std::unique_lock lock(mutex_);
  const sched::StepPlan& plan = scheduler_->plan();
  if (plan.empty()) {
    scheduler_->commit(plan, {});
    deliver(lock);
    return false;
  }
  sampled_.clear();
  Tensor logits;
  lock.unlock();
  const Status status = forward(plan, &logits);
  lock.lock();
  if (status.ok()) {
    observe(plan, logits);
    choose_tokens(plan, logits);
  } else {
    fail_plan(plan, status);
  }
  for (const sched::SequenceUpdate& update : scheduler_->commit(plan, sampled_)) publish(update);
  ++metrics_.steps;
  if (PELTON_DEBUG_CHECKS != 0 || !status.ok()) verify_integrity();
  deliver(lock);
  return true;
}

void Engine::run_until_idle() {
  while (step()) {
  }
}

void Engine::verify_integrity() {
  const Status status = scheduler_->check_integrity();
  if (status.ok()) return;
  healthy_ = false;
  for (auto& [id, live] : live_) {
    scheduler_->cancel(id, FinishReason::kError);
    end_request(*live, FinishReason::kError, status);
  }
}

EngineMetrics Engine::metrics() const {
  const std::lock_guard lock(mutex_);
  EngineMetrics metrics = metrics_;
  metrics.scheduler = scheduler_->stats();
  return metrics;
}

void Engine::deliver(std::unique_lock<std::mutex>& lock) {
  // Sinks run unlocked: they may submit or cancel. Ended requests leave the table only after their
  // last event was handed over, so each sink outlives its calls.
  while (!events_.empty()) {
    std::vector<TokenEvent> events;
    events.swap(events_);
    std::vector<std::unique_ptr<LiveRequest>> ended;
    std::vector<LiveRequest*> targets;
    targets.reserve(events.size());
    for (const TokenEvent& event : events) targets.push_back(live_.at(event.request).get());
    for (const TokenEvent& event : events) {
      const auto found = live_.find(event.request);
      if (found == live_.end() || found->second->open > 0) continue;
      for (sched::SequenceId sequence : found->second->sequences) owners_.erase(sequence);
      ended.push_back(std::move(found->second));
      live_.erase(found);
    }
    lock.unlock();
    for (size_t i = 0; i < events.size(); ++i) {
      if (targets[i]->sink) targets[i]->sink(events[i]);
    }
    ended.clear();
    lock.lock();
  }
}

}  // namespace pelton::engine
