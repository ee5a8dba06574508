// What one JSON object of an answer says to somebody who measures: was there text, how many tokens
// does the server count, is it an error. Reads streams' chunks and whole answers of the OpenAI
// routes for completions and chats.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pelton::bench_serve {

struct TokenCounts {
  int64_t prompt = 0;
  int64_t completion = 0;
  int64_t cached = 0;  // of the prompt
};

struct Piece {
  bool well_formed = false;
  bool has_text = false;  // an answer's, a reasoning's or a tool call's
  bool finished = false;  // a choice says why it ended
  std::optional<TokenCounts> usage;
  std::optional<std::string> error;  // the server's message
};

class AnswerReader {
 public:
  Piece read(std::string_view json);

 private:
  simdjson::dom::parser parser_;
};

}  // namespace pelton::bench_serve
