#include "sched/scheduler.h"

#include "base/check.h"
#include "sched/scheduler_impl.h"

namespace pelton::sched {

Scheduler::Impl::Impl(const SchedulerConfig& config)
    : config_(config),
      blocks_({config.num_blocks, config.block_tokens, config.enable_prefix_caching,
               config.prefix_hash_bits}) {
  check(config.max_num_seqs > 0 && config.max_num_batched_tokens > 0 && config.max_model_len > 0,
        "a scheduler has slots, rows and a context");
  check(config.max_logit_rows == 0 || config.max_logit_rows >= config.max_num_seqs,
        "every sequence of a step may ask for one row's logits");
  const auto slots = static_cast<size_t>(config.max_num_seqs);
  running_.reserve(slots);
  planned_.reserve(slots);
  plan_.sequences.reserve(slots);
  plan_.copies.reserve(4 * slots);  // also those of rows taken out of the plan again
  updates_.reserve(slots);
  if (config.static_batching) padding_.reserve(slots);
}

Sequence* Scheduler::Impl::find(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second;
}

Scheduler::Scheduler(const SchedulerConfig& config) : impl_(std::make_unique<Impl>(config)) {}
Scheduler::~Scheduler() = default;

Result<std::vector<SequenceId>> Scheduler::add(RequestId id, const Request& request) {
  return impl_->add(id, request);
}
std::span<const SequenceUpdate> Scheduler::cancel(RequestId id, FinishReason reason) {
  return impl_->cancel(id, reason);
}
std::optional<SequenceUpdate> Scheduler::finish(SequenceId id, FinishReason reason) {
  return impl_->finish(id, reason);
}
const StepPlan& Scheduler::plan() { return impl_->plan(); }
std::span<const SequenceUpdate> Scheduler::commit(const StepPlan& plan,
                                                  std::span<const SampledToken> sampled) {
  return impl_->commit(plan, sampled);
}
std::span<const SequenceUpdate> Scheduler::commit_ahead(const StepPlan& plan) {
  return impl_->commit_ahead(plan);
}
std::span<const SequenceUpdate> Scheduler::resolve(std::span<const SampledToken> sampled) {
  return impl_->resolve(sampled);
}
void Scheduler::commit_beams(RequestId id, std::span<const SequenceId> parents,
                             std::span<const int32_t> tokens) {
  impl_->commit_beams(id, parents, tokens);
}

std::span<const int32_t> Scheduler::tokens(SequenceId id) const {
  const Sequence* sequence = impl_->find(id);
  if (sequence == nullptr) return {};
  return sequence->tokens;
}
int32_t Scheduler::prompt_length(SequenceId id) const {
  const Sequence* sequence = impl_->find(id);
  return sequence == nullptr ? 0 : sequence->unit->job->prompt_length;
}
int32_t Scheduler::cached_prompt_tokens(SequenceId id) const {
  const Sequence* sequence = impl_->find(id);
  return sequence == nullptr ? 0 : sequence->unit->job->cached_prompt;
}

bool Scheduler::idle() const { return impl_->live_ == 0; }
SchedulerStats Scheduler::stats() const { return impl_->stats(); }
BlockUsage Scheduler::block_usage() const { return impl_->block_usage(); }
Status Scheduler::check_integrity() const { return impl_->check_integrity(); }

}  // namespace pelton::sched
