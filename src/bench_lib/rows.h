// What a row of a benchmark measures, said by its name: the name that asks for a row is the one it
// has in the results.
//
//   pp512, pp512@d1024       a prompt of 512 tokens, 1024 tokens into a context
//   pp8x2048                 8 prompts of 2048 tokens together
//   tg128, tg32_b64@d1024    128 tokens decoded; 32 each by 64 sequences, 1024 tokens into contexts
//   offline_128/2048         requests of 128 tokens in and 2048 out, as many as fit at once, twice
//   offline_128/2048_r1024   1024 of them
//   continuous_256/256_r1000, static_256/256_r1000
//                            1000 requests of 256 tokens in and lengths drawn with mean 256 out, by
//                            continuous and by static batching (batching.h)
//   batching_256/256_r1000   both of these, and the gain
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pelton::bench_lib {

enum class RowKind : uint8_t {
  kPrompt,
  kPrompts,
  kDecode,
  kOffline,
  kContinuous,
  kStatic,
  kBatching
};

struct RowSpec {
  RowKind kind = RowKind::kPrompt;
  int32_t input = 0;      // tokens of a prompt
  int32_t output = 0;     // tokens that a sequence generates
  int32_t sequences = 1;  // together
  int32_t depth = 0;      // tokens that are in the context before
  int32_t requests = 0;   // 0: as the kind has it

  friend bool operator==(const RowSpec&, const RowSpec&) = default;
};

// kInvalidArgument: no such row, or a number outside of [1, 2^20] (sequences, requests: 4096).
Result<RowSpec> parse_row(std::string_view name);
std::string row_name(const RowSpec& row);

}  // namespace pelton::bench_lib
