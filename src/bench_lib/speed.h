// Speed of an engine: prompt processing, decoding alone and in batches, offline throughput. Each
// figure comes with the least time that this machine's memory or arithmetic allows for the work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench_lib/roofline.h"
#include "bench_lib/rows.h"
#include "engine/engine.h"

namespace pelton::bench_lib {

// What one step of the model must do at least.
struct WorkModel {
  double streamed_bytes = 0;         // weights that any step reads
  double kv_bytes_per_token = 0;     // read for each cached token of each decoding sequence
  double ops_per_token = 0;          // products of one token in all layers, multiply and add apart
  double head_ops = 0;               // product of one row with the vocabulary
  double attention_ops_per_key = 0;  // of one token with one cached token, all layers
};
WorkModel work_model(const models::ModelConfig& config, const runtime::MemoryPlan& plan);

struct Bound {
  double seconds = 0;   // least time
  bool memory = false;  // memory decides, not arithmetic
};
// One step that decodes `sequences` rows, each attending to `context` tokens.
Bound decode_bound(const WorkModel& work, const Roofline& roofline, double sequences,
                   double context);
// A prompt of `tokens` after `context` others, in steps of `chunk`.
Bound prefill_bound(const WorkModel& work, const Roofline& roofline, double tokens, double context,
                    double chunk);

struct SpeedRow {
  std::string name;              // rows.h; "offline": prompts of a file
  double tokens_per_second = 0;  // median
  double limit = 0;              // tokens a second that the bound allows; 0 = none given
  bool memory_bound = false;
  double spread = 0;  // (largest - smallest) / median of the repetitions
  // Of a decode row: seconds a step, and on a device those of them that the host worked and did not
  // wait, and the device's idle share; below 0: not measured.
  double step_seconds = -1;
  double host_seconds = -1;
  double idle_share = -1;
  double gain = 0;  // of continuous batching, in times of static batching; 0: not of this row
};

double median(std::vector<double> values);
// `seconds`: one for each repetition, each of `tokens` tokens.
SpeedRow make_row(std::string name, double tokens, const std::vector<double>& seconds,
                  const Bound& bound);

// All of these take an idle engine without prefix caching.

// `tokens` prompt tokens to the first sampled one.
Result<SpeedRow> prompt_speed(engine::Engine& engine, const Roofline& roofline, int32_t tokens,
                              int32_t depth, int repeats);
// `sequences` sequences decode `tokens` tokens each, `depth` tokens into their context. Where the
// repetitions add little to the depth they follow each other in one run.
Result<SpeedRow> decode_speed(engine::Engine& engine, const Roofline& roofline, int32_t tokens,
                              int32_t sequences, int32_t depth, int repeats);
// Tokens that a sequence of such a row has room for beyond its depth.
int32_t decode_room(int32_t tokens, int32_t sequences, int32_t depth, int repeats);
// `sequences` prompts of `tokens` tokens together, to the last one's first token.
Result<SpeedRow> batched_prompt_speed(engine::Engine& engine, const Roofline& roofline,
                                      int32_t sequences, int32_t tokens, int repeats);
// Requests of equal lengths, as many as the row says, or twice as many as the engine runs at once;
// generated tokens count.
Result<SpeedRow> fixed_length_throughput(engine::Engine& engine, const RowSpec& row, int repeats);
// Prompts together, as many at once as the engine takes; prompt and generated tokens count.
Result<SpeedRow> offline_throughput(engine::Engine& engine,
                                    const std::vector<std::vector<int32_t>>& prompts,
                                    int32_t max_tokens, int repeats);

}  // namespace pelton::bench_lib
