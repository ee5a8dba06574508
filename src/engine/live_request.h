// What the engine keeps of a request between submit and its last event.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "engine/stop_text.h"
#include "engine/timeline.h"
#include "engine/token_history.h"
#include "pelton/request.h"
#include "sampling/beam_search.h"
#include "sampling/sampler.h"
#include "sched/step_plan.h"

namespace pelton::engine {

// One of the `n` answers to a request.
struct Completion {
  explicit Completion(StopText shown) : text(std::move(shown)) {}

  sched::SequenceId sequence = 0;
  StopText text;
  std::vector<TokenLogprobs> logprobs;  // of tokens chosen in the current step
  Usage usage;
  std::optional<TokenHistory> history;  // for penalties on a device
  bool ended = false;
};

// Short enough to be copied without memory.
inline Status out_of_memory() { return resource_exhausted("out of memory"); }

struct LiveRequest {
  LiveRequest(sampling::Sampler ready, uint64_t drawn_seed)
      : sampler(std::move(ready)), seed(drawn_seed) {}

  RequestId id = 0;
  Request request;
  sampling::Sampler sampler;
  uint64_t seed;
  std::vector<Completion> completions;       // with beams: one a returned hypothesis
  std::vector<sched::SequenceId> sequences;  // as the scheduler knows them
  std::optional<sampling::BeamSearch> beams;
  TimelineKeeper timeline;
  std::vector<int32_t> reached;  // one a sequence: tokens of it that were computed once
  std::vector<TokenLogprobs> prompt_logprobs;  // filled as chunks run, moved into the first event
  std::vector<double> pooled;                  // of a pooling request: sum of the rows seen so far
  int32_t pooled_rows = 0;                     // those are the prompt's first so many
  std::vector<int32_t> stop_ids;       // end ids and stop_token_ids: not chosen before min_tokens
  int32_t open = 0;                    // completions without their last event
  bool cancelled = false;              // asked for; the next step ends it
  bool host_sampled = false;           // needs logits on the host
  std::vector<ops::TokenBias> biases;  // for a device
  size_t list_bytes = 0;               // of a step's inputs, held for its lists while it lives
  std::function<void(const TokenEvent&)> sink;
};

}  // namespace pelton::engine
