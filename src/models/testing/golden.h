// Tiny models and what the reference computes from them (tests/golden/models/README.md), for tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pelton::models::testing {

struct GoldenArray {
  std::vector<int64_t> shape;
  std::span<const float> values;  // owned by the Golden
};

// One prompt, all positions in one forward.
struct GoldenCase {
  std::vector<int32_t> ids;
  int32_t context_len = 0;  // for rope_frequencies
  GoldenArray logits;       // [ids, vocab_size]
  // The residual stream, [ids, hidden_size]: "embedding", "layer.N.output".
  std::map<std::string, GoldenArray> hidden;
};

// Empty ids: the model has no such golden.
struct GoldenGreedy {
  std::vector<int32_t> prompt;
  std::vector<int32_t> ids;   // without an end token
  float least_margin = 0.0f;  // smallest distance of the two best logits on the way
};

struct GoldenBeam {
  std::vector<int32_t> prompt;
  int32_t num_beams = 0;
  float length_penalty = 0.0f;
  std::string early_stopping;  // "false", "true", "never"
  int32_t max_new_tokens = 0;
  std::vector<int32_t> eos_token_ids;
  std::vector<std::vector<int32_t>> sequences;  // output only, end token included, best first
  std::vector<float> scores;
};

struct Golden {
  std::string name;
  std::filesystem::path folder;  // config.json, model.safetensors, tokenizer.json
  std::filesystem::path gguf;    // the same weights; empty where GGUF cannot say them
  std::vector<GoldenCase> cases;
  GoldenGreedy greedy;
  std::vector<GoldenBeam> beams;

  std::vector<float> storage;
};

// tests/golden/models of the source tree.
std::filesystem::path golden_root();
// Every model there, sorted.
std::vector<std::string> golden_names();
Result<Golden> load_golden(std::string_view name);

// Largest |got - want| as a fraction of the largest |want|; infinite for sizes that differ and for
// values that are not finite.
double relative_error(std::span<const float> got, std::span<const float> want);

}  // namespace pelton::models::testing
