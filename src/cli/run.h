// pelton run: complete one prompt, or chat in the terminal.
#pragma once

#include <string>
#include <vector>

#include "cli/common.h"
#include "pelton/sampling_params.h"

namespace pelton::cli {

struct RunOptions {
  CommonOptions common;
  std::string prompt;
  bool has_prompt = false;
  std::string file;  // prompt from this file; "-" = standard input
  std::string system;
  bool raw = false;  // no chat template
  bool greedy = false;
  bool ids_only = false;
  int32_t max_tokens = -1;  // -1 = to the end of the context
  int32_t num_beams = 1;
  SamplingParams sampling;  // holds what the command line set
  std::vector<std::string>
      set_by_user;  // names of sampling options given; others take the model's defaults
};

// `unanswered`: whether a message that did not come from a terminal got no answer.
Status run_run(const RunOptions& options, bool* unanswered);

}  // namespace pelton::cli
