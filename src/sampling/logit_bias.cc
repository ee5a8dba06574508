#include <limits>

#include "sampling/stages.h"

namespace pelton::sampling {

void apply_logit_bias(std::span<float> logits, std::span<const std::pair<int32_t, float>> bias) {
  for (const auto& [token, value] : bias) {
    if (token >= 0 && static_cast<size_t>(token) < logits.size()) {
      logits[static_cast<size_t>(token)] += value;
    }
  }
}

void apply_suppressed(std::span<float> logits, std::span<const int32_t> suppressed) {
  for (const int32_t token : suppressed) {
    if (token >= 0 && static_cast<size_t>(token) < logits.size()) {
      logits[static_cast<size_t>(token)] = -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace pelton::sampling
