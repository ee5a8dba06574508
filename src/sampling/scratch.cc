#include "sampling/scratch.h"

#include <algorithm>

namespace pelton::sampling {

void SamplerScratch::reserve(int32_t vocab_size, int32_t max_model_len) {
  const auto vocab = static_cast<size_t>(std::max(vocab_size, 0));
  candidates.reserve(vocab);
  selection.reserve(vocab);
  raw.reserve(vocab);
  per_token.resize(vocab, 0);
  per_position.reserve(static_cast<size_t>(std::max(max_model_len, 0)));
}

int64_t SamplerScratch::bytes(int32_t vocab_size, int32_t max_model_len) {
  constexpr int64_t kPerToken = 2 * sizeof(Candidate) + sizeof(float) + sizeof(int32_t);
  return int64_t{vocab_size} * kPerToken + int64_t{max_model_len} * int64_t{sizeof(int32_t)};
}

}  // namespace pelton::sampling
