// Choosing the next token of each row on a device: from logits to token ids, which stay there.
//
// The result is that of the CPU pipeline (docs/sampling.md), bit for bit: logit bias, suppressed
// ids, penalties, temperature, top-k, top-p, min-p, draw, in this order, with the same fixed-point
// weights and the same random numbers. What it has beyond that (DRY, typical, log-probabilities)
// stays on the CPU.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace pelton::kernels {

struct TokenBias {
  int32_t token = 0;
  float bias = 0.0f;
};

// A token that a row's prompt or output holds. `outputs`: how often the output does; 0: the prompt
// alone.
struct TokenCount {
  int32_t token = 0;
  int32_t outputs = 0;
};

// What one row asks for. Pointers are to device memory and may be null where their count is 0. Ids
// outside the vocabulary are skipped. The defaults draw from the whole distribution.
struct SampleRow {
  bool active = true;        // false: the row is left alone, nothing is written for it
  float temperature = 1.0f;  // >= 0; 0: the lowest id among the highest logits
  int32_t top_k = 0;         // <= 0: off
  float top_p = 1.0f;        // (0, 1]; 1: off
  float min_scaled = -std::numeric_limits<float>::infinity();  // min_p_bound(min_p)
  float repetition = 1.0f;                                     // over all of `history`
  float presence = 0.0f;              // over those of `history` with outputs
  float frequency = 0.0f;             // likewise, times outputs
  uint64_t seed = 0;                  // keys of the draw
  uint32_t sequence = 0;              // completion index
  uint32_t position = 0;              // of the token to be drawn: prompt + output so far
  const TokenBias* biases = nullptr;  // distinct tokens
  const int32_t* suppressed = nullptr;
  const TokenCount* history = nullptr;  // distinct tokens; read only where a penalty is not neutral
  const int32_t* newest = nullptr;      // one more output that `history` does not count yet: where
                                        // an earlier launch puts it; optional
  int32_t num_biases = 0;
  int32_t num_suppressed = 0;
  int32_t history_size = 0;
};

enum class SampleState : int32_t {
  kSampled,
  kBadLogits,    // NaN, +infinity, or all -infinity, as the model gave them
  kNothingLeft,  // the same after bias and suppressed ids
};

struct SampleParams {
  float* logits = nullptr;         // [rows][vocab_size], readable to the 16-byte boundaries around;
                                   // overwritten where tokens are biased, suppressed or penalised
  int64_t logits_stride = 0;       // elements between rows
  int32_t rows = 0;                // 0: nothing is launched
  int32_t vocab_size = 0;          // at most kSampleMaxVocab
  const SampleRow* row = nullptr;  // [rows] on the device
  int32_t* tokens = nullptr;       // [rows] out; 0 where none could be chosen
  SampleState* states = nullptr;   // [rows] out, optional
};

inline constexpr int32_t kSampleMaxVocab = 327680;

// The scaled logit, relative to the best, below which a token is less than `min_p` times as likely.
inline float min_p_bound(float min_p) {
  if (!(min_p > 0.0f)) return -std::numeric_limits<float>::infinity();
  const double least = std::log(static_cast<double>(min_p));
  const auto bound = static_cast<float>(least);
  return static_cast<double>(bound) >= least
             ? bound
             : std::nextafter(bound, std::numeric_limits<float>::infinity());
}

}  // namespace pelton::kernels
