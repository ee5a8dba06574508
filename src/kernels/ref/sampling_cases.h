// The case table of sampling: the scalar reference, the device's kernel and the CPU pipeline must
// choose the same token in every case, for every seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "kernels/params/sampling.h"

namespace pelton::kernels::ref {

enum class RowShape {
  kNormal,
  kRounded,    // to bf16: many logits are equal
  kPeaked,     // a few tokens hold nearly all mass
  kConstant,   // every token is as likely
  kAscending,  // the likely ones come last
  kFewFinite,  // all but a few are -infinity
};

struct SamplingCase {
  const char* name;
  int32_t vocab;
  RowShape shape = RowShape::kNormal;
  float spread = 2.0f;
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition = 1.0f;
  float presence = 0.0f;
  float frequency = 0.0f;
  int32_t history = 0;
  int32_t biases = 0;
  int32_t suppressed = 0;
};

inline constexpr SamplingCase kSamplingCases[] = {
    {.name = "greedy", .vocab = 128256, .temperature = 0},
    {.name = "greedy, ties", .vocab = 32000, .shape = RowShape::kRounded, .temperature = 0},
    {.name = "greedy, equal", .vocab = 5003, .shape = RowShape::kConstant, .temperature = 0},
    {.name = "plain", .vocab = 128256},
    {.name = "plain, hot", .vocab = 50257, .temperature = 1.7f},
    {.name = "plain, cold", .vocab = 50257, .temperature = 0.05f},
    {.name = "plain, freezing", .vocab = 32000, .temperature = 1e-30f},
    {.name = "plain, equal", .vocab = 262144, .shape = RowShape::kConstant},
    {.name = "plain, one token", .vocab = 1},
    {.name = "plain, three tokens", .vocab = 3},
    {.name = "top-k", .vocab = 128256, .temperature = 0.8f, .top_k = 50},
    {.name = "top-k 1", .vocab = 151669, .top_k = 1},
    {.name = "top-k, ties", .vocab = 128256, .shape = RowShape::kRounded, .top_k = 40},
    {.name = "top-k, equal", .vocab = 32003, .shape = RowShape::kConstant, .top_k = 100},
    {.name = "top-k, ascending", .vocab = 128256, .shape = RowShape::kAscending, .top_k = 50},
    {.name = "top-k, few finite", .vocab = 32000, .shape = RowShape::kFewFinite, .top_k = 50},
    {.name = "top-k, merged by heat", .vocab = 32000, .temperature = 1e7f, .top_k = 20},
    {.name = "top-k 256", .vocab = 262144, .top_k = 256},
    {.name = "top-k 1000", .vocab = 128256, .top_k = 1000},
    {.name = "top-k of a small row", .vocab = 97, .top_k = 50},
    {.name = "top-k above the row", .vocab = 1001, .top_k = 5000},
    {.name = "top-p", .vocab = 128256, .spread = 3, .top_p = 0.9f},
    {.name = "top-p, flat", .vocab = 128256, .spread = 1, .top_p = 0.95f},
    {.name = "top-p, flat, hot", .vocab = 50257, .spread = 1, .temperature = 1.3f, .top_p = 0.5f},
    {.name = "top-p, peaked", .vocab = 128256, .shape = RowShape::kPeaked, .top_p = 0.95f},
    {.name = "top-p, equal", .vocab = 32003, .shape = RowShape::kConstant, .top_p = 0.3f},
    {.name = "top-p, ties", .vocab = 50257, .shape = RowShape::kRounded, .top_p = 0.7f},
    {.name = "top-p, tiny", .vocab = 32000, .top_p = 1e-9f},
    {.name = "top-p, almost all", .vocab = 32000, .top_p = 0.99999994f},
    {.name = "min-p", .vocab = 128256, .min_p = 0.05f},
    {.name = "min-p, flat", .vocab = 128256, .spread = 0.5f, .min_p = 0.01f},
    {.name = "min-p 1", .vocab = 32000, .shape = RowShape::kRounded, .min_p = 1.0f},
    {.name = "top-k, top-p", .vocab = 128256, .temperature = 0.7f, .top_k = 50, .top_p = 0.9f},
    {.name = "top-k, top-p, min-p", .vocab = 151669, .top_k = 64, .top_p = 0.95f, .min_p = 0.02f},
    {.name = "top-k 2000, top-p",
     .vocab = 128256,
     .spread = 1,
     .top_k = 2000,
     .top_p = 0.8f,
     .min_p = 0.001f},
    {.name = "top-k, top-p, ties",
     .vocab = 262144,
     .shape = RowShape::kRounded,
     .top_k = 64,
     .top_p = 0.5f},
    {.name = "bias", .vocab = 32000, .top_k = 20, .biases = 300},
    {.name = "suppressed", .vocab = 32000, .shape = RowShape::kPeaked, .suppressed = 40},
    {.name = "repetition", .vocab = 32000, .top_k = 50, .repetition = 1.3f, .history = 700},
    {.name = "repetition below 1",
     .vocab = 32000,
     .temperature = 0,
     .repetition = 0.7f,
     .history = 700},
    {.name = "presence", .vocab = 32000, .presence = 1.5f, .history = 2000},
    {.name = "frequency", .vocab = 32000, .temperature = 0, .frequency = 0.4f, .history = 2000},
    {.name = "everything",
     .vocab = 128256,
     .temperature = 0.9f,
     .top_k = 100,
     .top_p = 0.9f,
     .min_p = 0.01f,
     .repetition = 1.1f,
     .presence = 0.5f,
     .frequency = 0.1f,
     .history = 3000,
     .biases = 50,
     .suppressed = 5},
};

// A case's row and all that it points to.
struct SamplingData {
  std::vector<float> logits;
  std::vector<TokenBias> biases;
  std::vector<int32_t> suppressed;
  std::vector<TokenCount> history;
  int32_t newest = 0;
  SampleRow row;
};

inline std::vector<float> sampling_logits(const SamplingCase& c, uint64_t seed) {
  Random random(seed);
  std::vector<float> logits(static_cast<size_t>(c.vocab));
  for (float& logit : logits) {
    // A sum of uniform numbers: quicker than a normal one, and as good here.
    logit = c.spread * (random.uniform(-1.7f, 1.7f) + random.uniform(-1.7f, 1.7f));
  }
  switch (c.shape) {
    case RowShape::kNormal:
      break;
    case RowShape::kRounded:
      for (float& logit : logits) {
        uint32_t bits;
        std::memcpy(&bits, &logit, sizeof bits);
        bits &= 0xffff0000u;
        std::memcpy(&logit, &bits, sizeof bits);
      }
      break;
    case RowShape::kPeaked:
      for (int i = 0; i < 12; ++i) logits[random.below(logits.size())] += 12.0f;
      break;
    case RowShape::kConstant:
      std::ranges::fill(logits, 1.25f);
      break;
    case RowShape::kAscending:
      std::ranges::sort(logits);
      break;
    case RowShape::kFewFinite:
      for (size_t i = 0; i < logits.size(); ++i) {
        if (i % 1777 != 5) logits[i] = -std::numeric_limits<float>::infinity();
      }
      break;
  }
  return logits;
}

// Up to `count` distinct ids.
inline std::vector<int32_t> distinct_ids(Random& random, int32_t vocab, int32_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab)));
  std::ranges::sort(ids);
  const auto repeats = std::ranges::unique(ids);
  ids.erase(repeats.begin(), repeats.end());
  return ids;
}

// Pointers lead into the result's own vectors, so it must not be copied.
inline void make_sampling_data(const SamplingCase& c, uint64_t seed, SamplingData& data) {
  Random random(seed + 1000);
  data.logits = sampling_logits(c, seed);
  for (const int32_t id : distinct_ids(random, c.vocab, c.biases)) {
    data.biases.push_back({id, random.uniform(-8.0f, 8.0f)});
  }
  data.suppressed = distinct_ids(random, c.vocab, c.suppressed);
  for (int i = 0; c.suppressed > 0 && i < 3; ++i) {  // among them the best
    const auto best = std::ranges::max_element(data.logits) - data.logits.begin();
    data.suppressed.push_back(static_cast<int32_t>(best));
  }
  for (const int32_t id : distinct_ids(random, c.vocab, c.history)) {
    data.history.push_back({id, static_cast<int32_t>(random.below(4))});
  }
  if (c.history > 0) {  // the best was there, too, now and then as the newest
    const auto best = std::ranges::max_element(data.logits) - data.logits.begin();
    const auto id = static_cast<int32_t>(best);
    const auto found = std::ranges::find(data.history, id, &TokenCount::token);
    if (found == data.history.end()) data.history.push_back({id, 2});
    data.newest = seed % 2 == 0 ? id : data.history.front().token + 1;
  }
  SampleRow& row = data.row;
  row.temperature = c.temperature;
  row.top_k = c.top_k;
  row.top_p = c.top_p;
  row.min_scaled = min_p_bound(c.min_p);
  row.repetition = c.repetition;
  row.presence = c.presence;
  row.frequency = c.frequency;
  row.seed = seed * 0x9e3779b97f4a7c15u;
  row.sequence = static_cast<uint32_t>(seed % 3);
  for (const TokenCount& count : data.history) {
    row.position += static_cast<uint32_t>(std::max(count.outputs, 1));
  }
  row.position += c.history > 0 ? 1 : 0;
  row.biases = data.biases.data();
  row.num_biases = static_cast<int32_t>(data.biases.size());
  row.suppressed = data.suppressed.data();
  row.num_suppressed = static_cast<int32_t>(data.suppressed.size());
  row.history = data.history.data();
  row.history_size = static_cast<int32_t>(data.history.size());
  row.newest = c.history > 0 ? &data.newest : nullptr;
}

}  // namespace pelton::kernels::ref
