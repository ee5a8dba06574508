// Ranges and cross-checks that both configuration readers share. Private to models.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/config.h"

namespace pelton::models {

// Largest values accepted, far above any released model: they bound every product of two of them
// within 63 bits.
inline constexpr int64_t kMaxHiddenSize = 1 << 20;
inline constexpr int64_t kMaxLayers = 1 << 12;
inline constexpr int64_t kMaxHeads = 1 << 14;
inline constexpr int64_t kMaxHeadDim = 1 << 12;
inline constexpr int64_t kMaxIntermediateSize = 1 << 24;
inline constexpr int64_t kMaxVocabSize = 4 << 20;
inline constexpr int64_t kMaxPositions = 1 << 27;
inline constexpr double kMaxNormEps = 0.1;
inline constexpr double kMaxRopeTheta = 1e15;
inline constexpr double kMaxRopeFactor = 1e6;

// What the source calls the fields that messages name.
struct FieldNames {
  std::string hidden_size, num_attention_heads, num_key_value_heads, head_dim, rotary_dim;
  std::string rope_theta, rope_scaling, norm_eps, sliding_window, bos_token_id, eos_token_id;
};

// What one value breaks, in the form "path: key: reason".
Status field_error(std::string_view path, std::string_view key, std::string_view reason);
Status field_unsupported(std::string_view path, std::string_view key, std::string_view reason);

// Checks every value that single keys do not settle: divisibility, RoPE, windows, token ids.
Status check_config(const ModelConfig& config, std::string_view path, const FieldNames& names);

}  // namespace pelton::models
