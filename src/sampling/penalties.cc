#include <algorithm>
#include <limits>

#include "sampling/stages.h"

namespace pelton::sampling {
namespace {

constexpr int32_t kPromptOnly = -1;

// A repetition penalty near 0 may overflow; the largest float keeps the order and stays finite.
float bounded(float logit) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  return logit > kLargest ? kLargest : logit;
}

float penalised(float logit, int32_t count, const Penalties& penalties) {
  if (penalties.repetition != 1.0f) {
    logit = bounded(logit < 0.0f ? logit * penalties.repetition : logit / penalties.repetition);
  }
  if (count > 0) {
    logit -= penalties.presence + penalties.frequency * static_cast<float>(count);
  }
  return logit;
}

}  // namespace

void apply_penalties(std::span<float> logits, const History& history, const Penalties& penalties,
                     SamplerScratch& scratch) {
  if (scratch.per_token.size() < logits.size()) scratch.per_token.resize(logits.size(), 0);
  const auto count_of = [&](int32_t token) -> int32_t* {
    const bool inside = token >= 0 && static_cast<size_t>(token) < logits.size();
    return inside ? &scratch.per_token[static_cast<size_t>(token)] : nullptr;
  };
  for (const int32_t token : history.output) {
    if (int32_t* count = count_of(token)) ++*count;
  }
  if (penalties.repetition != 1.0f) {
    for (const int32_t token : history.prompt) {
      if (int32_t* count = count_of(token); count != nullptr && *count == 0) *count = kPromptOnly;
    }
  }
  // Clearing the count at the first meeting applies each token once and leaves the scratch clean.
  const auto apply = [&](std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) {
      int32_t* count = count_of(token);
      if (count == nullptr || *count == 0) continue;
      float& logit = logits[static_cast<size_t>(token)];
      logit = penalised(logit, *count, penalties);
      *count = 0;
    }
  };
  apply(history.output);
  if (penalties.repetition != 1.0f) apply(history.prompt);
}

}  // namespace pelton::sampling
