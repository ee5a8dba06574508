// What the scheduler's tests share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "sched/testing/simulator.h"

namespace pelton::sched::testing {

inline SchedulerConfig small_config() {
  SchedulerConfig config;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 64;
  config.max_model_len = 256;
  config.block_tokens = 8;
  config.num_blocks = 128;
  return config;
}

inline Request make_request(int32_t prompt, int32_t max_tokens, uint64_t seed = 1) {
  Request request;
  Random random(seed);
  for (int32_t i = 0; i < prompt; ++i) {
    request.prompt_ids.push_back(static_cast<int32_t>(random.below(1000)));
  }
  request.sampling.max_tokens = max_tokens;
  return request;
}

// What the stand-in model says without any scheduler: up to `length` tokens, or the first of
// `stops` once there are `least`.
inline std::vector<int32_t> expected(const Simulator& sim, const Request& request, int32_t length,
                                     uint64_t stream = 0, const std::vector<int32_t>& stops = {},
                                     int32_t least = 0) {
  std::vector<int32_t> tokens = request.prompt_ids;
  uint64_t history = 0;
  for (int32_t token : tokens) history = Simulator::absorb(history, token);
  while (static_cast<int32_t>(tokens.size()) < length) {
    tokens.push_back(sim.next_token(history, stream));
    history = Simulator::absorb(history, tokens.back());
    if (static_cast<int32_t>(tokens.size()) >= least &&
        std::ranges::find(stops, tokens.back()) != stops.end()) {
      break;
    }
  }
  return tokens;
}

}  // namespace pelton::sched::testing
