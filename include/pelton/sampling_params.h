// How the tokens of one request are chosen. Plain data; field names follow vLLM and the OpenAI API.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pelton/status.h"

namespace pelton {

// When beam search stops once `num_beams` hypotheses are finished: at once (true), when the best
// live beam cannot beat the worst of them at its present length (false), or when it cannot at any
// length up to the limit ("never").
enum class EarlyStopping { kFalse, kTrue, kNever };

struct SamplingParams {
  int32_t max_tokens =
      std::numeric_limits<int32_t>::max();  // clamped to the context's end; 0 = prompt only
  int32_t min_tokens = 0;                   // stops are ignored before this many tokens

  float temperature = 1.0f;  // 0 = greedy
  int32_t top_k = 0;         // 0 or -1 = off
  float top_p = 1.0f;        // (0, 1]; 1 = off
  float min_p = 0.0f;        // [0, 1]; 0 = off. Threshold relative to the most likely token
  float typical_p = 1.0f;    // (0, 1]; 1 = off. Locally typical sampling, arXiv 2202.00666

  float repetition_penalty =
      1.0f;  // > 0; over prompt and output, once a distinct token (CTRL, arXiv 1909.05858)
  float presence_penalty = 0.0f;   // [-2, 2]; over output only
  float frequency_penalty = 0.0f;  // [-2, 2]; over output only

  float dry_multiplier = 0.0f;  // 0 = off. Penalises tokens that would extend a repeated sequence
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  int32_t dry_penalty_last_n = -1;  // tokens looked back; -1 = whole context
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};

  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, added to its logit
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop;  // the text ends before the first of these
  bool ignore_eos = false;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;  // control tokens leave no text

  std::optional<uint64_t> seed;  // unset: the engine draws one and reports it
  int32_t n = 1;                 // independent completions of one prompt

  // Beam search, when above 1: width, length penalty (score = sum of log-probabilities /
  // length^penalty) and early stop, as in Hugging Face transformers. Sampling fields must then be
  // neutral, and `n` is how many of the beams are returned.
  int32_t num_beams = 1;
  float length_penalty = 1.0f;
  EarlyStopping early_stopping = EarlyStopping::kFalse;

  // Log-probabilities of this many most likely tokens beside the chosen one; -1 = none. Taken from
  // the model's own distribution before any stage ("raw"), or from the distribution that was
  // sampled ("processed").
  int32_t logprobs = -1;
  int32_t prompt_logprobs = -1;
  enum class LogprobsMode { kRaw, kProcessed } logprobs_mode = LogprobsMode::kRaw;
};

// First violated range, naming the field. `vocab_size` bounds token ids, `max_model_len` the
// lengths.
Status validate(const SamplingParams& params, int32_t vocab_size, int32_t max_model_len);

}  // namespace pelton
