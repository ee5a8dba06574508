// What a caller submits and what it gets back. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "pelton/sampling_params.h"
#include "pelton/status.h"

namespace pelton {

// Made by the engine, unique for the life of the process; never a client's string.
using RequestId = uint64_t;

enum class FinishReason { kNone, kStop, kLength, kCancelled, kError };
const char* finish_reason_name(
    FinishReason reason);  // "stop", "length", "cancelled", "error"; "" for kNone

struct TokenLogprob {
  int32_t token = -1;
  float logprob = 0.0f;  // natural log, always finite
};

// The chosen token first, then the most likely ones, best first.
struct TokenLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};

// What a request wants of its prompt's final hidden states (after the last norm) instead of text:
// the last token's, or the mean over all tokens.
enum class Pooling { kNone, kLast, kMean };

struct Request {
  std::vector<int32_t> prompt_ids = {};
  SamplingParams sampling = {};
  int32_t priority = 0;         // lower runs first
  std::string cache_salt = {};  // prefix-cache entries are shared only among equal salts
  // With pooling: of `sampling` nothing is used, there is one completion, and its only event holds
  // the embedding and the finish. The prompt must leave room for one token.
  Pooling pooling = Pooling::kNone;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, served by the prefix cache
};

// Where the engine's time for a request went; seconds since the engine accepted it. Completions of
// one request share it.
struct RequestTimeline {
  // Prompt tokens, or such as a preemption lost, that one step computed.
  struct Chunk {
    double begin = 0;
    double seconds = 0;
    int32_t tokens = 0;
  };
  static constexpr size_t kMaxChunks = 16;

  double scheduled = 0;    // its first rows began; until then it waited. 0 = none did
  double first_token = 0;  // 0 = none came
  int32_t prefill_chunks = 0;
  std::array<Chunk, kMaxChunks> prefill;  // the last one holds all beyond
  int64_t decode_steps = 0;
  double decode_seconds = 0;      // of steps that decoded it
  double detokenize_seconds = 0;  // token ids to text
  int32_t preemptions = 0;
  int64_t recomputed_tokens = 0;
};

// One step's news of one completion of a request. Exactly one event per completion carries a finish
// reason, and it is the last one of that completion.
struct TokenEvent {
  RequestId request = 0;
  int32_t index = 0;            // which of `n` completions, or the beam's rank
  std::vector<int32_t> tokens;  // new tokens; empty on a pure finish
  // Text that these tokens complete: whole characters only, nothing that may still become part of a
  // stop string. All texts of a completion joined are its text.
  std::string text;
  std::vector<TokenLogprobs> logprobs;  // one a token when asked for
  // On the first event of a request that asked: one a prompt token, the first without a prediction
  // (token -1).
  std::vector<TokenLogprobs> prompt_logprobs;
  FinishReason finish = FinishReason::kNone;
  int32_t stopped_by = -1;       // with kStop: which of SamplingParams::stop was met; -1 = none
  std::vector<float> embedding;  // of a pooling request, [hidden_size], not normalised
  Usage usage;                   // of this completion so far; complete on the finish
  Status error;                  // set when finish == kError
  // With a finish; valid while the event is being delivered.
  const RequestTimeline* timeline = nullptr;
};

}  // namespace pelton
