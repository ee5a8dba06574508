// What requests ask for: prompts and lengths of answers. Built-in distributions need no data file
// and, as they have no tokenizer either, are made of common words, about one token each, or of
// token ids where the server takes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace pelton::bench_serve {

struct Prompt {
  std::string text = {};
  std::vector<int32_t> ids = {};  // used instead of `text` when there are any
  int32_t max_tokens = 0;
  int32_t planned_tokens = 0;  // of the prompt; 0 = not known
  bool shares_prefix = false;
};

struct WorkloadOptions {
  // random: every length as given. exponential: answers are exponential with the given mean, cut at
  // `output_cap`. sharegpt: both lengths log-normal, as in chats between people and models, with
  // the given means. Anything else is a file (read_dataset()).
  std::string dataset = "random";
  int32_t count = 100;
  int32_t input_len = 256;
  int32_t output_len = 128;
  int32_t output_cap = 1536;
  // The first tokens of a prompt are, with probability `prefix_share`, one of `prefix_count` texts
  // of `prefix_len` tokens; they count beside `input_len`.
  int32_t prefix_len = 0;
  double prefix_share = 1;
  int32_t prefix_count = 1;
  // Prompts as token ids in [first_id, last_id]; last_id 0 = text.
  int32_t first_id = 0;
  int32_t last_id = 0;
  uint64_t seed = 0;
};

// True for the names that need no file.
bool is_built_in(const std::string& dataset);

// kInvalidArgument names the option.
Result<std::vector<Prompt>> make_workload(const WorkloadOptions& options);

// Of a file's text: JSON lines of {"prompt", "output_len"} (or "max_tokens"), or ShareGPT's list of
// {"conversations": [{"from", "value"}, …]}, of which the first two turns are taken and the
// answer's length is that of the second at four characters a token. Answers of no stated length get
// `options.output_len`. Repeated from the start until there are `options.count`. `name` is for
// error lines.
Result<std::vector<Prompt>> read_dataset(const std::string& text, const std::string& name,
                                         const WorkloadOptions& options);

}  // namespace pelton::bench_serve
