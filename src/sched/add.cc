// Requests enter: what can never run is refused here, so that what is queued always ends.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>

#include "sched/scheduler_impl.h"

namespace pelton::sched {

// Tokens a sequence may reach so that its whole unit fits the pool alone. Its last token is never
// computed and needs no room. Beams share the prompt's full blocks and own the rest.
int32_t Scheduler::Impl::pool_length(const Request& request) const {
  const auto prompt = static_cast<int64_t>(request.prompt_ids.size());
  const int64_t beams = request.sampling.num_beams;
  const int64_t shared = beams > 1 ? prompt / config_.block_tokens : 0;
  if (shared > config_.num_blocks) return 0;
  const int64_t each = shared + (config_.num_blocks - shared) / beams;
  const int64_t length = each * config_.block_tokens + 1;
  return static_cast<int32_t>(std::min<int64_t>(length, std::numeric_limits<int32_t>::max()));
}

// Tokens at which its sequences end: an unset max_tokens goes as far as context and pool do.
int32_t Scheduler::Impl::longest(const Request& request) const {
  const SamplingParams& sampling = request.sampling;
  const auto wanted = static_cast<int64_t>(request.prompt_ids.size()) + sampling.max_tokens;
  const auto length = static_cast<int32_t>(std::min<int64_t>(wanted, config_.max_model_len));
  if (sampling.max_tokens != std::numeric_limits<int32_t>::max()) return length;
  return std::min(length, pool_length(request));
}

Status Scheduler::Impl::refuse(const Request& request) const {
  const SamplingParams& sampling = request.sampling;
  if (request.prompt_ids.empty()) return invalid_argument("prompt: holds no tokens");
  if (sampling.max_tokens < 0) return invalid_argument("max_tokens: must not be negative");
  if (sampling.n < 1) return invalid_argument("n: must be at least 1");
  if (sampling.num_beams < 1) return invalid_argument("num_beams: must be at least 1");
  if (sampling.num_beams > 1 && sampling.n > 1) {
    return invalid_argument("n: must be 1 with num_beams above 1");
  }
  const int32_t widest = std::min(config_.max_num_seqs, config_.max_num_batched_tokens);
  if (sampling.num_beams > widest) {
    return invalid_argument(fmt::format("num_beams: {} beams, but a step holds at most {} rows",
                                        sampling.num_beams, widest));
  }
  const auto prompt = static_cast<int64_t>(request.prompt_ids.size());
  const int64_t least = prompt + (sampling.max_tokens == 0 ? 0 : 1);
  if (least > config_.max_model_len) {
    return invalid_argument(
        fmt::format("prompt: {} tokens and {} to generate exceed max_model_len {}", prompt,
                    least - prompt, config_.max_model_len));
  }
  // The last token of a prompt is computed, that of a completion is not.
  const int64_t reach = std::max<int64_t>(longest(request), prompt + 1);
  if (reach > pool_length(request)) {
    return invalid_argument(fmt::format(
        "max_tokens: {} tokens need more than the {} KV blocks of {} tokens",
        std::max<int64_t>(longest(request), least), config_.num_blocks, config_.block_tokens));
  }
  return {};
}

void Scheduler::Impl::add_unit(Job* job, const Request& request, int32_t first_index,
                               int32_t members) {
  Unit* unit = job->units.emplace_back(std::make_unique<Unit>()).get();
  unit->job = job;
  unit->key = {order_rank(job->priority, plan_.step, config_.priority_aging_steps), next_arrival_,
               first_index};
  unit->place = first_index == 0 ? Place::kWaiting : Place::kAwaitsPrompt;
  unit->forked = false;
  unit->members.resize(static_cast<size_t>(members));
  for (int32_t i = 0; i < members; ++i) {
    Sequence& sequence = unit->members[static_cast<size_t>(i)];
    sequence.id = next_sequence_++;
    sequence.unit = unit;
    sequence.index = first_index + i;
    sequence.tokens.reserve(static_cast<size_t>(job->max_length));
    sequence.tokens = request.prompt_ids;
    blocks_.open(&sequence.table, request.cache_salt, job->max_length);
    sequences_.emplace(sequence.id, &sequence);
  }
  if (members > 1) {
    unit->parents.reserve(unit->members.size());
    unit->scratch.resize(unit->members.size());
    for (BeamScratch& scratch : unit->scratch) {
      scratch.tokens.reserve(static_cast<size_t>(job->max_length));
      blocks_.open(&scratch.table, request.cache_salt, job->max_length);
    }
  }
  waiting_.prepare(unit);
  if (unit->place == Place::kWaiting) waiting_.push(unit);
  ++job->live_units;
  live_ += members;
}

// Takes back what add() had made when memory ran out.
void Scheduler::Impl::withdraw(Job* job) {
  for (int32_t i = 0; const auto& unit : job->units) {
    const bool complete = i++ < job->live_units;
    if (complete) live_ -= static_cast<int32_t>(unit->members.size());
    if (complete && unit->place == Place::kWaiting) waiting_.remove(unit.get());
    for (Sequence& sequence : unit->members) {
      sequences_.erase(sequence.id);
      blocks_.close(&sequence.table);
    }
    for (BeamScratch& scratch : unit->scratch) blocks_.close(&scratch.table);
  }
}

Result<std::vector<SequenceId>> Scheduler::Impl::add(RequestId id, const Request& request) {
  if (Status s = refuse(request); !s.ok()) return s;
  if (queued_jobs_ >= config_.max_waiting) {
    return resource_exhausted(fmt::format("{} requests are waiting already", queued_jobs_));
  }
  check(!jobs_.contains(id), "a request is added once");
  const SamplingParams& sampling = request.sampling;
  auto job = std::make_unique<Job>();
  job->id = id;
  job->priority = request.priority;
  job->prompt_length = static_cast<int32_t>(request.prompt_ids.size());
  job->prompt_only = sampling.max_tokens == 0;
  job->max_length = longest(request);
  job->min_length = static_cast<int32_t>(std::min<int64_t>(
      int64_t{job->prompt_length} + std::max(sampling.min_tokens, 0), job->max_length));
  job->prompt_logprobs = sampling.prompt_logprobs >= 0;
  job->ignore_eos = sampling.ignore_eos;
  job->stop_token_ids = sampling.stop_token_ids;
  std::vector<SequenceId> ids;
  try {
    for (int32_t i = 0; i < sampling.n; ++i) add_unit(job.get(), request, i, sampling.num_beams);
    for (const auto& unit : job->units) {
      for (const Sequence& sequence : unit->members) ids.push_back(sequence.id);
    }
    // Nothing that happens to these units in a step may allocate.
    ended_.reserve(ended_.size() + padding_.size() + static_cast<size_t>(live_));
    cancelled_.reserve(ids.size());
    plan_.preempted.reserve(static_cast<size_t>(live_));
    jobs_[id] = std::move(job);
  } catch (const std::bad_alloc&) {
    withdraw(job.get());
    return resource_exhausted("out of memory");
  }
  ++next_arrival_;
  ++queued_jobs_;
  return ids;
}

}  // namespace pelton::sched
