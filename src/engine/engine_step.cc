// From a step's logits to tokens, and from the scheduler's updates to events. Everything here runs
// under the engine's lock.
#include <algorithm>
#include <new>
#include <utility>

#include "engine/engine.h"

namespace pelton::engine {
namespace {

std::span<float> row_of(const Tensor& logits, int64_t row) {
  return {logits.row_f32(row), static_cast<size_t>(logits.row_elements())};
}

template <typename T>
bool contains(const std::vector<T>& items, T item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

// Whatever memory there is, the event says that something failed.
void tell(const Status& error, TokenEvent* event) {
  try {
    event->error = error;
  } catch (const std::bad_alloc&) {
    event->error = out_of_memory();
  }
}

}  // namespace

int32_t Engine::completion_index(const LiveRequest& live, sched::SequenceId sequence) const {
  const auto found = std::find(live.sequences.begin(), live.sequences.end(), sequence);
  return static_cast<int32_t>(found - live.sequences.begin());
}

void Engine::observe(const sched::StepPlan& plan, const Tensor& logits) {
  if (!observer_) return;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const sched::SequenceStep& step = plan.sequences[i];
    const LiveRequest* live = owner_of(step.sequence);
    if (live == nullptr) continue;
    const auto range = runner_->logit_range(i);
    const auto rows = static_cast<int32_t>(step.tokens.size());
    for (int32_t j = 0; j < range.count; ++j) {
      const int32_t position = step.first_position + rows - range.count + j;
      observer_(live->id, completion_index(*live, step.sequence), position,
                row_of(logits, range.first + j));
    }
  }
}

void Engine::draw_tokens(const sched::StepPlan& plan, const Tensor& logits) {
  draws_.clear();
  beam_groups_.clear();
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const sched::SequenceStep& step = plan.sequences[i];
    LiveRequest* live = owner_of(step.sequence);
    if (live == nullptr || live->open == 0) continue;
    if (live->request.pooling != Pooling::kNone) {
      pool_rows(*live, step, i);
    } else if (step.all_logits) {
      take_prompt_logprobs(*live, step, i, logits);
    }
    if (!step.samples) continue;
    if (live->beams) {
      if (!contains(beam_groups_, live)) beam_groups_.push_back(live);
      continue;
    }
    const auto range = runner_->logit_range(i);
    draws_.push_back({.live = live,
                      .sequence = step.sequence,
                      .index = completion_index(*live, step.sequence),
                      .logits = row_of(logits, range.first + range.count - 1)});
  }
  // Rows are independent and draws are keyed, so which thread takes which row changes nothing.
  pool_->parallel_for(static_cast<int64_t>(draws_.size()), [&](int64_t i, int thread) {
    draw(draws_[static_cast<size_t>(i)], sampler_scratch_[static_cast<size_t>(thread)]);
  });
  for (Draw& d : draws_) fold(d);
  for (LiveRequest* live : beam_groups_) advance_beams(*live, plan, logits);
}

void Engine::draw(Draw& d, sampling::SamplerScratch& scratch) const {
  const SamplingParams& params = d.live->request.sampling;
  const std::span<const int32_t> tokens = scheduler_->tokens(d.sequence);
  const auto prompt_length = static_cast<size_t>(scheduler_->prompt_length(d.sequence));
  const std::span<const int32_t> output = tokens.subspan(prompt_length);
  const bool keep_going = static_cast<int64_t>(output.size()) < params.min_tokens;
  d.result =
      d.live->sampler.sample({.logits = d.logits,
                              .prompt = tokens.first(prompt_length),
                              .output = output,
                              .seed = d.live->seed,
                              .sequence_index = static_cast<uint32_t>(d.index),
                              .suppressed = keep_going ? std::span<const int32_t>(d.live->stop_ids)
                                                       : std::span<const int32_t>()},
                             scratch);
}

void Engine::fold(Draw& d) {
  if (d.live->open == 0) return;  // a sibling's error ended the request
  if (!d.result.ok()) {
    return fail_request(*d.live, damaged_logits(d.result.status()));
  }
  if (d.live->request.sampling.logprobs >= 0) {
    d.live->completions[static_cast<size_t>(d.index)].logprobs.push_back(
        std::move(d.result->logprobs));
  }
  sampled_.push_back({d.sequence, d.result->token});
}

void Engine::take_prompt_logprobs(LiveRequest& live, const sched::SequenceStep& step, size_t index,
                                  const Tensor& logits) {
  const auto range = runner_->logit_range(index);
  const std::vector<int32_t>& prompt = live.request.prompt_ids;
  for (int32_t j = 0; j < range.count; ++j) {
    const auto next = static_cast<size_t>(step.first_position + j + 1);
    if (next >= prompt.size() || next >= live.prompt_logprobs.size()) break;
    live.prompt_logprobs[next] = sampling::row_logprobs(
        row_of(logits, range.first + j), prompt[next], live.request.sampling.prompt_logprobs);
  }
}

void Engine::pool_rows(LiveRequest& live, const sched::SequenceStep& step, size_t index) {
  const Tensor& hidden = runner_->hidden();
  const auto range = runner_->logit_range(index);
  const auto size = static_cast<size_t>(hidden.row_elements());
  const int32_t first =
      step.first_position + static_cast<int32_t>(step.tokens.size()) - range.count;
  live.pooled.resize(size);
  for (int32_t j = 0; j < range.count; ++j) {
    // Rows may come again after a preemption.
    if (live.request.pooling == Pooling::kMean && first + j != live.pooled_rows) continue;
    const float* row = hidden.row_f32(range.first + j);
    for (size_t k = 0; k < size; ++k) live.pooled[k] += static_cast<double>(row[k]);
    ++live.pooled_rows;
  }
}

std::vector<float> Engine::embedding_of(const LiveRequest& live) {
  const auto wanted = live.request.pooling == Pooling::kMean
                          ? static_cast<int32_t>(live.request.prompt_ids.size())
                          : 1;
  check(live.pooled_rows == wanted, "every row of a prompt is pooled once");
  std::vector<float> out(live.pooled.size());
  for (size_t k = 0; k < out.size(); ++k)
    out[k] = static_cast<float>(live.pooled[k] / static_cast<double>(wanted));
  return out;
}

void Engine::advance_beams(LiveRequest& live, const sched::StepPlan& plan, const Tensor& logits) {
  // Rows in beam order; the plan lists the group's sequences in the order the scheduler likes.
  std::vector<std::span<float>> rows(live.sequences.size());
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    if (!plan.sequences[i].samples || owner_of(plan.sequences[i].sequence) != &live) continue;
    const auto range = runner_->logit_range(i);
    rows[static_cast<size_t>(completion_index(live, plan.sequences[i].sequence))] =
        row_of(logits, range.first + range.count - 1);
  }
  rows.resize(static_cast<size_t>(live.beams->num_live()));
  for (const std::span<float> row : rows) check(!row.empty(), "every live beam has a row");
  const auto advanced = live.beams->advance(rows);
  if (!advanced.ok()) {
    return fail_request(live, damaged_logits(advanced.status()));
  }
  const sampling::BeamSearch::Step& next = *advanced;
  if (next.done) {
    scheduler_->cancel(live.id, FinishReason::kStop);
    end_beams(live);
    return;
  }
  std::vector<sched::SequenceId> parents;
  parents.reserve(next.parents.size());
  for (int32_t parent : next.parents)
    parents.push_back(live.sequences[static_cast<size_t>(parent)]);
  scheduler_->commit_beams(live.id, parents, next.tokens);
}

void Engine::end_beams(LiveRequest& live) {
  if (live.open == 0) return;
  const std::vector<sampling::BeamHypothesis> best = live.beams->finish(live.request.sampling.n);
  for (int32_t i = 0; i < live.request.sampling.n; ++i) {
    Completion& completion = live.completions[static_cast<size_t>(i)];
    TokenEvent& event = queue_event(live, i);
    FinishReason reason = FinishReason::kLength;
    if (static_cast<size_t>(i) < best.size()) {
      event.tokens = best[static_cast<size_t>(i)].tokens;
      const bool ended = !event.tokens.empty() && contains(live.stop_ids, event.tokens.back());
      if (ended) reason = FinishReason::kStop;
      for (size_t t = 0; t + (ended ? 1 : 0) < event.tokens.size(); ++t)
        event.text += completion.text.push(event.tokens[t]);
      completion.usage.completion_tokens = static_cast<int64_t>(event.tokens.size());
      metrics_.generated_tokens += completion.usage.completion_tokens;
    }
    close(live, event, reason);
  }
}

TokenEvent& Engine::queue_event(LiveRequest& live, int32_t index) {
  TokenEvent& event = events_.emplace_back();
  event.request = live.id;
  event.index = index;
  event.prompt_logprobs = std::exchange(live.prompt_logprobs, {});
  return event;
}

void Engine::close(LiveRequest& live, TokenEvent& event, FinishReason reason) {
  Completion& completion = live.completions[static_cast<size_t>(event.index)];
  check(!completion.ended, "a completion ends once");
  try {
    event.text += completion.text.finish();
  } catch (const std::bad_alloc&) {
    reason = FinishReason::kError;
    event.error = out_of_memory();
  }
  completion.ended = true;
  event.finish = reason;
  completion.usage.prompt_tokens = static_cast<int64_t>(live.request.prompt_ids.size());
  event.usage = completion.usage;
  event.timeline = &live.timeline.times;
  if (--live.open > 0) return;
  if (reason == FinishReason::kError) {
    ++metrics_.failed;
  } else if (reason == FinishReason::kCancelled) {
    ++metrics_.cancelled;
  } else {
    ++metrics_.finished;
  }
}

void Engine::publish(const sched::SequenceUpdate& update) {
  LiveRequest* live = owner_of(update.sequence);
  if (live == nullptr || live->open == 0) return;
  if (live->beams) {
    if (update.finish != FinishReason::kNone) end_beams(*live);
    return;
  }
  const int32_t index = completion_index(*live, update.sequence);
  Completion& completion = live->completions[static_cast<size_t>(index)];
  if (completion.ended) return;
  TokenEvent& event = queue_event(*live, index);
  event.tokens.assign(update.new_tokens.begin(), update.new_tokens.end());
  event.logprobs = std::exchange(completion.logprobs, {});
  completion.usage.cached_tokens = scheduler_->cached_prompt_tokens(update.sequence);
  completion.usage.completion_tokens += static_cast<int64_t>(event.tokens.size());
  metrics_.generated_tokens += static_cast<int64_t>(event.tokens.size());
  FinishReason finish = update.finish;
  if (live->request.pooling != Pooling::kNone && finish == FinishReason::kLength)
    event.embedding = embedding_of(*live);
  // The token that ends a sequence is part of its ids, not of its text.
  const size_t shown =
      event.tokens.size() - (finish == FinishReason::kStop && !event.tokens.empty() ? 1 : 0);
  const auto began = StepClock::now();
  for (size_t i = 0; i < shown; ++i) event.text += completion.text.push(event.tokens[i]);
  live->timeline.note_detokenized(StepClock::now() - began);
  if (completion.text.stopped()) {
    event.stopped_by = completion.text.stopped_by();
    if (finish == FinishReason::kNone) scheduler_->finish(update.sequence, FinishReason::kStop);
    finish = FinishReason::kStop;
  }
  if (finish != FinishReason::kNone) {
    close(*live, event, finish);
  } else {
    event.usage = completion.usage;
  }
}

void Engine::end_request(LiveRequest& live, FinishReason reason, const Status& error) {
  for (int32_t i = 0; i < live.request.sampling.n; ++i) {
    if (live.completions[static_cast<size_t>(i)].ended) continue;
    TokenEvent& event = queue_event(live, i);
    tell(error, &event);
    close(live, event, reason);
  }
}

void Engine::fail_request(LiveRequest& live, const Status& status) {
  scheduler_->cancel(live.id, FinishReason::kError);
  end_request(live, FinishReason::kError, status);
}

// Rows that are no distribution come from weights that are not finite, or out of float's range.
Status Engine::damaged_logits(const Status& status) const {
  if (status.code() != StatusCode::kInternal) return status;
  return data_loss(status.message()).with_context(files().path());
}

void Engine::fail_plan(const sched::StepPlan& plan, const Status& status) {
  for (const sched::SequenceStep& step : plan.sequences) {
    LiveRequest* live = owner_of(step.sequence);
    if (live == nullptr || live->open == 0) continue;
    fail_request(*live, status);
  }
}

}  // namespace pelton::engine
