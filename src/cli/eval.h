// pelton eval: perplexity of a text, divergence from another model, proof of invariance.
#pragma once

#include <string>

#include "cli/common.h"

namespace pelton::cli {

struct EvalOptions {
  CommonOptions common;
  std::string perplexity;      // text file
  std::string kl;              // base model to compare with
  std::string kl_activations;  // of the base: f32 unless given
  std::string text;            // text file of --kl
  bool prove = false;
  int32_t window = 0;       // tokens of a window; 0 = 1024 for perplexity, 256 for divergence
  int32_t limit = 0;        // windows at most; 0 = all
  std::string dump_logits;  // write float32 logits [ids, vocab] of --ids here
  std::string ids;          // file with token ids
};

// `differs`: --prove found a difference, which the program reports by exit code 1.
Status run_eval(const EvalOptions& options, bool* differs);

}  // namespace pelton::cli
