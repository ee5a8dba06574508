// pelton bench: how fast a model runs here, and how near that is to what the machine allows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/common.h"

namespace pelton::cli {

struct BenchOptions {
  CommonOptions common;
  int32_t prompt_tokens = 512;                   // -p
  int32_t generated_tokens = 128;                // -n
  int32_t depth = 0;                             // tokens already in the context
  std::vector<int32_t> batches = {2, 4, 8, 16};  // sizes of the batched decode rows
  int32_t repeat = 5;
  // Words and names (bench_lib/rows.h); "offline" is added by --prompts.
  std::vector<std::string> rows = {"pp", "tg", "batch"};
  bool json_lines = false;                // each row as soon as it is there
  std::string save;                       // refused: a shape's weights are made where they are used
  std::vector<std::string> prefill = {};  // "8x2048": prompts together, rows of their own
  std::vector<std::string> lengths = {};  // "128/128": input and output of offline throughput
  bool enforce_eager = false;
  std::string prompts;  // text file with a prompt a line
};

Status run_bench(const BenchOptions& options);

}  // namespace pelton::cli
