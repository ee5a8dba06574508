// The text of one choice of a chat, told apart: content, reasoning, calls of tools.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/output/output_parser.h"

namespace pelton::server {

class OutputSplit {
 public:
  explicit OutputSplit(const text::OutputOptions& options)
      : parser_(text::make_output_parser(options)) {}

  // What `text` makes certain; all of it when `last`.
  text::OutputPieces take(std::string_view text, bool last);
  bool called() const { return called_; }

 private:
  std::unique_ptr<text::OutputParser> parser_;  // null: all is content
  bool called_ = false;
};

// A whole answer.
struct SplitAnswer {
  struct Call {
    std::string name;
    std::string arguments;
  };
  std::string content;
  std::string reasoning;
  std::vector<Call> calls;
};
SplitAnswer split_answer(std::string_view text, const text::OutputOptions& options);

// An id of a call: the same for the same answer, choice and number. Mistral's templates want nine
// letters and digits, and nothing before them.
std::string tool_call_id(std::string_view prefix, std::string_view answer, int32_t choice,
                         int32_t call, text::CallFormat format);

}  // namespace pelton::server
