#include "kernels/ref/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "base/rng.h"

namespace pelton::kernels::ref {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool has_distribution(std::span<const float> logits) {
  float max = -kInfinity;
  for (const float logit : logits) {
    if (std::isnan(logit)) return false;
    max = std::max(max, logit);
  }
  return std::isfinite(max);
}

void penalise(std::span<float> logits, const SampleRow& row) {
  if (row.repetition == 1.0f && row.presence == 0.0f && row.frequency == 0.0f) return;
  std::vector<TokenCount> counts(row.history, row.history + row.history_size);
  if (row.newest != nullptr) {
    const auto found = std::ranges::find(counts, *row.newest, &TokenCount::token);
    if (found != counts.end()) {
      ++found->outputs;
    } else {
      counts.push_back({*row.newest, 1});
    }
  }
  for (const auto& [token, outputs] : counts) {
    if (token < 0 || static_cast<size_t>(token) >= logits.size()) continue;
    float& logit = logits[static_cast<size_t>(token)];
    if (row.repetition != 1.0f) {
      const float penalised = logit < 0.0f ? logit * row.repetition : logit / row.repetition;
      logit = std::min(penalised, std::numeric_limits<float>::max());
    }
    if (outputs > 0) logit -= row.presence + row.frequency * static_cast<float>(outputs);
  }
}

void adjust(std::span<float> logits, const SampleRow& row) {
  const auto inside = [&](int32_t token) {
    return token >= 0 && static_cast<size_t>(token) < logits.size();
  };
  for (const TokenBias& b : std::span(row.biases, static_cast<size_t>(row.num_biases))) {
    if (inside(b.token)) logits[static_cast<size_t>(b.token)] += b.bias;
  }
  for (const int32_t token : std::span(row.suppressed, static_cast<size_t>(row.num_suppressed))) {
    if (inside(token)) logits[static_cast<size_t>(token)] = -kInfinity;
  }
  penalise(logits, row);
}

// e^x * 2^44 for x <= 0: the weights of docs/sampling.md, whose polynomial is part of the contract.
uint64_t weight_of(float x) {
  if (x < -87.0f) return 0;
  const float n = (x * 1.44269504088896341f + 12582912.0f) - 12582912.0f;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  for (const float c :
       {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) {
    p = p * r + c;
  }
  const float y = p * (r * r) + r + 1.0f;
  const auto power = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  return static_cast<uint64_t>(y * power * 17592186044416.0f);
}

struct Entry {
  float scaled = 0.0f;
  int32_t token = 0;
  uint64_t weight = 0;
};

uint64_t total_weight(std::span<const Entry> entries) {
  uint64_t total = 0;
  for (const Entry& entry : entries) total += entry.weight;
  return total;
}

// Shortest prefix whose weight reaches share `p`.
void keep_mass(std::vector<Entry>& best_first, float p) {
  const auto total = static_cast<double>(total_weight(best_first));
  const double share = static_cast<double>(p) * total;
  if (!(share < total)) return;
  const auto target = static_cast<uint64_t>(std::ceil(share));
  uint64_t sum = 0;
  size_t kept = 0;
  do {
    sum += best_first[kept++].weight;
  } while (sum < target);
  best_first.resize(kept);
}

int32_t draw(std::vector<Entry>& entries, const SampleRow& row) {
  std::ranges::sort(entries, {}, &Entry::token);
  const uint64_t total = total_weight(entries);
  const double uniform = uniform_random(row.seed, row.sequence, row.position);
  uint64_t rest = std::min(static_cast<uint64_t>(uniform * static_cast<double>(total)), total - 1);
  for (const Entry& entry : entries) {
    if (rest < entry.weight) return entry.token;
    rest -= entry.weight;
  }
  return entries.back().token;
}

int32_t choose(std::span<const float> logits, const SampleRow& row) {
  const float max = *std::ranges::max_element(logits);
  std::vector<Entry> entries;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (row.temperature == 0.0f) {
      if (logits[i] == max) return static_cast<int32_t>(i);
      continue;
    }
    const float scaled = (logits[i] - max) / row.temperature;
    entries.push_back({scaled, static_cast<int32_t>(i), weight_of(scaled)});
  }
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return a.scaled != b.scaled ? a.scaled > b.scaled : a.token < b.token;
  });
  if (row.top_k > 0 && static_cast<size_t>(row.top_k) < entries.size()) {
    entries.resize(static_cast<size_t>(row.top_k));
  }
  if (row.top_p < 1.0f) keep_mass(entries, row.top_p);
  std::erase_if(entries, [&](const Entry& e) { return e.scaled < row.min_scaled; });
  return draw(entries, row);
}

}  // namespace

void sample_rows(const SampleParams& params) {
  for (int32_t i = 0; i < params.rows; ++i) {
    const SampleRow& row = params.row[i];
    if (!row.active) continue;
    const std::span<float> logits(params.logits + i * params.logits_stride,
                                  static_cast<size_t>(params.vocab_size));
    SampleState state = SampleState::kSampled;
    int32_t token = 0;
    if (!has_distribution(logits)) {
      state = SampleState::kBadLogits;
    } else {
      adjust(logits, row);
      if (has_distribution(logits)) {
        token = choose(logits, row);
      } else {
        state = SampleState::kNothingLeft;
      }
    }
    params.tokens[i] = token;
    if (params.states != nullptr) params.states[i] = state;
  }
}

}  // namespace pelton::kernels::ref
