// The distinct tokens of a sequence and how often its output holds each, as a device's penalties
// want them: counted once as the sequence grows, never from the beginning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/sample_request.h"

namespace pelton::engine {

class TokenHistory {
 public:
  // Room for `tokens` tokens. All its memory is taken here.
  explicit TokenHistory(int32_t tokens);

  // Counts tokens[0, until) of the sequence, of which it knows those of the last call already;
  // those from `prompt_length` on are output. More than there is room for: a programmer error.
  void extend(std::span<const int32_t> tokens, size_t until, size_t prompt_length);
  // In order of first appearance; valid until the next extend().
  std::span<const ops::TokenCount> counts() const { return counts_; }

 private:
  ops::TokenCount& count_of(int32_t token);

  std::vector<ops::TokenCount> counts_;
  std::vector<int32_t> table_;  // hashed: 1 + a token's place in counts_, or 0
  size_t counted_ = 0;
};

}  // namespace pelton::engine
