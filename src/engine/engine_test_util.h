// Helpers of the engine's tests: load a model or fail, run a request to its end, collect what it
// said.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace pelton::engine {

struct CompletionOutcome {
  std::vector<int32_t> ids;
  std::string text;
  FinishReason finish = FinishReason::kNone;
  int finishes = 0;  // events with a finish reason: one is right
  Status error;
  Usage usage;
  std::vector<TokenLogprobs> logprobs;
};

struct Outcome {
  Status status;  // of submit
  std::vector<CompletionOutcome> completions;
  std::vector<TokenLogprobs> prompt_logprobs;

  // Collects one event.
  void add(const TokenEvent& event);
};

// Null, with a test failure, when the model cannot be loaded.
std::unique_ptr<Engine> load_or_fail(const std::filesystem::path& path,
                                     const EngineOptions& options);
// Submits and steps until idle.
Outcome run_request(Engine& engine, const Request& request);
// All positions' logits of a prompt, [ids, vocab_size].
std::vector<float> logits_of(Engine& engine, const std::vector<int32_t>& ids);
// tests/data/runnel-2m.
std::filesystem::path small_model();

}  // namespace pelton::engine
