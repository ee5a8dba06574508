#include "bench_lib/batching.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "bench_lib/load.h"

namespace pelton::bench_lib {
namespace {

constexpr int32_t kLongest = 6;  // in means
constexpr int32_t kDefaultRequests = 200;

engine::EngineOptions options_of(const engine::Engine& engine, const RowSpec& row) {
  const bool fixed = row.kind == RowKind::kStatic;
  engine::EngineOptions options = engine.options();
  const int32_t most_at_once = options.cuda ? 256 : 64;
  options.max_num_seqs = fixed ? kBatchingReservations : most_at_once;
  options.max_logit_rows = 0;
  const int32_t blocks = (batching_context(row) + options.block_size - 1) / options.block_size;
  options.num_kv_blocks = kBatchingReservations * blocks;
  options.static_batching = fixed;
  options.enable_prefix_caching = false;
  return options;
}

Result<TimedLoad> run(engine::Engine& engine, const RowSpec& row) {
  auto made = engine::Engine::create(engine.loaded(), options_of(engine, row));
  if (!made.ok()) return made.status();
  const int32_t count = row.requests > 0 ? row.requests : kDefaultRequests;
  const std::vector<int32_t> lengths = batching_lengths(row, count);
  std::vector<Request> requests;
  for (size_t i = 0; i < lengths.size(); ++i)
    requests.push_back(greedy_request(random_prompt(engine, row.input, i + 1), lengths[i]));
  return run_load(**made, requests);
}

}  // namespace

int32_t batching_context(const RowSpec& row) {
  return std::max(row.input + kLongest * row.output, (kLongest + 1) * row.output);
}

std::vector<int32_t> batching_lengths(const RowSpec& row, int32_t requests) {
  constexpr uint64_t kSeed = 1;
  Random random(kSeed);
  std::vector<int32_t> lengths(static_cast<size_t>(requests));
  for (int32_t& length : lengths) {
    const double drawn = -std::log1p(-random.uniform()) * row.output;
    length = static_cast<int32_t>(
        std::clamp(std::round(drawn), 1.0, static_cast<double>(kLongest) * row.output));
  }
  return lengths;
}

Result<std::vector<SpeedRow>> batching_speed(engine::Engine& engine, const RowSpec& row) {
  std::vector<RowSpec> parts = {row};
  if (row.kind == RowKind::kBatching) {
    parts.push_back(row);
    parts.front().kind = RowKind::kContinuous;
    parts.back().kind = RowKind::kStatic;
  }
  std::vector<SpeedRow> rows;
  for (const RowSpec& part : parts) {
    const auto load = run(engine, part);
    if (!load.ok()) return load.status();
    rows.push_back(
        make_row(row_name(part), static_cast<double>(load->generated_tokens), {load->seconds}, {}));
  }
  if (rows.size() == 2)
    rows.front().gain = rows.front().tokens_per_second / rows.back().tokens_per_second;
  return rows;
}

}  // namespace pelton::bench_lib
