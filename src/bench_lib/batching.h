// Continuous against static batching: the same requests, model, machine and KV memory.
#pragma once

#include <cstdint>
#include <vector>

#include "bench_lib/rows.h"
#include "bench_lib/speed.h"
#include "engine/engine.h"

namespace pelton::bench_lib {

// Answers have exponentially distributed lengths and are cut at six times their mean; the KV cache
// of both runs holds 32 reservations of seven times the mean (a prompt and the longest answer).
// Static batches are as many sequences as have such a reservation, so none runs out of memory.
inline constexpr int32_t kBatchingReservations = 32;
// Tokens of a context that an engine for such a row needs.
int32_t batching_context(const RowSpec& row);
// Lengths of the answers, the same for every run.
std::vector<int32_t> batching_lengths(const RowSpec& row, int32_t requests);

// Generated tokens a second of what the row names. Of both: two rows, of which that of continuous
// batching says the gain. The engines of the two runs share the weights of `engine`, whose
// `max_model_len` is at least batching_context().
Result<std::vector<SpeedRow>> batching_speed(engine::Engine& engine, const RowSpec& row);

}  // namespace pelton::bench_lib
