// pelton tokenize: ids and pieces of a text, a chat, or the text of ids.
#pragma once

#include <string>
#include <vector>

#include "cli/common.h"

namespace pelton::cli {

struct TokenizeOptions {
  CommonOptions common;
  std::string text;
  bool has_text = false;
  std::string file;     // text, conversation or ids from this file; "-" = standard input
  bool decode = false;  // the text is a list of ids
  std::string
      chat;  // FILE.json: {"messages", "tools", "add_generation_prompt"} or a list of messages
  bool no_special = false;  // nothing around the text
  bool parse_special = false;
};

// Integers separated by blanks, commas or brackets.
Result<std::vector<int32_t>> parse_ids(const std::string& text);

Status run_tokenize(const TokenizeOptions& options);

}  // namespace pelton::cli
