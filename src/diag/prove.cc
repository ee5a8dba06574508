#include "diag/prove.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <map>

namespace pelton::diag {
namespace {

// Logits of one run's rows by position. Rows that a prefix hit spared are absent.
using Rows = std::map<int32_t, std::vector<float>>;

struct Setting {
  std::string name;
  int32_t chunk = 0;       // tokens of a step; 0 = the default
  int32_t companions = 0;  // other requests in flight
  int32_t blocks = 0;      // pool size; 0 = ample
  int32_t block_size = 0;  // 0 = the options'
  int threads = 1;
  bool warm_cache = false;  // run once before, so that the prompt is in the prefix cache
};

Request greedy(const std::vector<int32_t>& prompt, int32_t tokens) {
  Request request{.prompt_ids = prompt};
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = tokens;
  request.sampling.ignore_eos = true;
  request.sampling.prompt_logprobs = 0;  // asks for every row of the prompt
  return request;
}

// Another request of about the same length whose tokens differ.
std::vector<int32_t> companion(const std::vector<int32_t>& prompt, int32_t index,
                               int32_t vocab_size) {
  std::vector<int32_t> other = prompt;
  other.resize(std::max<size_t>(1, prompt.size() - static_cast<size_t>(index) % prompt.size()));
  for (size_t i = 0; i < other.size(); ++i) {
    other[i] = static_cast<int32_t>(
        (static_cast<uint64_t>(other[i]) * 31 + static_cast<uint64_t>(index) * 97 + i) %
        static_cast<uint64_t>(vocab_size));
  }
  return other;
}

Result<Rows> run(const std::shared_ptr<const engine::LoadedModel>& loaded,
                 engine::EngineOptions options, const Setting& setting,
                 const std::vector<int32_t>& prompt, int32_t decode_tokens, int64_t* preemptions) {
  options.threads = setting.threads;
  options.max_num_seqs = setting.companions + 1;
  if (setting.chunk > 0) options.max_num_batched_tokens = setting.chunk + setting.companions;
  options.max_logit_rows = options.max_num_batched_tokens;
  options.num_kv_blocks = setting.blocks;
  if (setting.block_size > 0) options.block_size = setting.block_size;
  options.enable_prefix_caching = setting.warm_cache;
  auto engine = engine::Engine::create(loaded, options);
  if (!engine.ok()) return engine.status();
  Status error;
  const auto sink = [&](const TokenEvent& event) {
    if (event.finish == FinishReason::kError) error = event.error;
  };
  if (setting.warm_cache) {
    Request first = greedy(prompt, 1);
    first.sampling.prompt_logprobs = -1;
    auto id = (*engine)->submit(std::move(first), sink);
    if (!id.ok()) return id.status();
    (*engine)->run_until_idle();
  }
  Request request = greedy(prompt, decode_tokens);
  if (setting.warm_cache) request.sampling.prompt_logprobs = -1;  // a hit computes the rest only
  for (int32_t i = 0; i < setting.companions; ++i) {
    Request other =
        greedy(companion(prompt, i + 1, loaded->model().config().vocab_size), decode_tokens + i);
    other.sampling.prompt_logprobs = -1;
    auto id = (*engine)->submit(std::move(other), sink);
    if (!id.ok()) return id.status();
  }
  Rows rows;
  auto id = (*engine)->submit(std::move(request), sink);
  if (!id.ok()) return id.status();
  (*engine)->set_logits_observer(
      [&](RequestId request_id, int32_t, int32_t position, std::span<const float> logits) {
        if (request_id == *id) rows[position].assign(logits.begin(), logits.end());
      });
  (*engine)->run_until_idle();
  if (!error.ok()) return error;
  *preemptions = (*engine)->metrics().scheduler.preemptions;
  return rows;
}

ProofCase compare(const std::string& name, const Rows& reference, const Rows& rows) {
  ProofCase result;
  result.name = name;
  for (const auto& [position, row] : rows) {
    const auto found = reference.find(position);
    if (found == reference.end()) continue;
    ++result.rows;
    if (std::memcmp(found->second.data(), row.data(), row.size() * sizeof(float)) == 0) continue;
    ++result.differing_rows;
    if (!result.first_difference.empty()) continue;
    for (size_t i = 0; i < row.size(); ++i) {
      if (std::bit_cast<uint32_t>(row[i]) == std::bit_cast<uint32_t>(found->second[i])) continue;
      result.first_difference = fmt::format("position {}: token {}: {} against {}", position, i,
                                            row[i], found->second[i]);
      break;
    }
  }
  return result;
}

}  // namespace

Result<std::vector<ProofCase>> prove(std::shared_ptr<const engine::LoadedModel> loaded,
                                     const engine::EngineOptions& options,
                                     const std::vector<int32_t>& prompt, int32_t decode_tokens) {
  const auto length = static_cast<int32_t>(prompt.size()) + decode_tokens;
  if (length > options.max_model_len)
    return invalid_argument("the prompt and its continuation exceed max_model_len");
  // Two prompts fit with room for three more blocks; their continuations need more, so one is
  // preempted and recomputed.
  constexpr int32_t kSmallBlock = 16;
  const int32_t prompt_blocks =
      (static_cast<int32_t>(prompt.size()) + kSmallBlock - 1) / kSmallBlock;
  const int32_t small_pool =
      std::max(2 * prompt_blocks + 3, (length + kSmallBlock - 1) / kSmallBlock);
  const std::vector<Setting> settings = {
      {.name = "in a batch of 8", .companions = 7},
      {.name = "chunked at 1", .chunk = 1},
      {.name = "chunked at 7", .chunk = 7},
      {.name = "chunked at 64", .chunk = 64},
      {.name = "preempted",
       .chunk = 64,
       .companions = 3,
       .blocks = small_pool,
       .block_size = kSmallBlock},
      {.name = "prefix-cached", .warm_cache = true},
      {.name = "2 threads", .threads = 2},
      {.name = "3 threads", .threads = 3},
      {.name = "3 threads, chunked at 7, in a batch of 8",
       .chunk = 7,
       .companions = 7,
       .threads = 3},
  };
  int64_t preemptions = 0;
  const auto reference =
      run(loaded, options, {.name = "alone"}, prompt, decode_tokens, &preemptions);
  if (!reference.ok()) return reference.status();
  std::vector<ProofCase> cases;
  for (const Setting& setting : settings) {
    const auto rows = run(loaded, options, setting, prompt, decode_tokens, &preemptions);
    if (!rows.ok()) return rows.status().with_context(setting.name);
    cases.push_back(compare(setting.name, *reference, *rows));
    cases.back().exercised = cases.back().rows > 0 && (setting.blocks == 0 || preemptions > 0);
  }
  return cases;
}

}  // namespace pelton::diag
