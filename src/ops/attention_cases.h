// Head shapes and variants that drive the attention tests and the benchmark.
#pragma once

#include <cstdint>

namespace pelton::ops {

struct AttentionCase {
  const char* name;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t sliding_window = 0;
  float soft_cap = 0.0f;
  bool sinks = false;
  bool alibi = false;
};
inline constexpr AttentionCase kAttentionCases[] = {
    {"smollm2_135m", 9, 3, 64},
    {"qwen2_1_5b", 12, 2, 128},
    {"gemma3_270m", 4, 1, 256},
    {"gemma3_window", 4, 1, 256, 100},
    {"multi_head", 4, 4, 64},
    {"phi_head_80", 4, 2, 80},
    {"head_96", 6, 2, 96},
    {"tiny_head_8", 2, 1, 8},
    {"odd_head_24", 5, 1, 24},
    {"odd_head_72", 7, 1, 72},
    {"starcoder_multi_query", 128, 1, 16},  // more heads than one task holds
    {"gemma2_soft_cap", 4, 2, 64, 0, 5.0f},
    {"gpt_oss_sinks_window", 8, 1, 64, 37, 0.0f, true},
    {"bloom_alibi", 4, 4, 64, 0, 0.0f, false, true},
    {"everything", 6, 2, 40, 50, 8.0f, true, true},
    {"window_1", 2, 1, 64, 1},
};

}  // namespace pelton::ops
