// Text of one completion as it may be shown: whole characters, cut before the stop string that is
// complete first, and never a character that could still turn out to belong to one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace pelton::engine {

class StopText {
 public:
  StopText(std::shared_ptr<const text::Tokenizer> tokenizer, std::vector<std::string> stops,
           bool include_stop, bool skip_special_tokens);

  // Text that may be shown after this token. `stopped()` turns true when a stop string is complete.
  std::string push(int32_t token);
  // What was held back, at the end of the generation.
  std::string finish();
  bool stopped() const { return stopped_; }
  // Which stop string that was; -1 before.
  int32_t stopped_by() const { return stopped_by_; }

 private:
  std::string release();

  text::StreamingDetokenizer detokenizer_;
  std::vector<std::string> stops_;
  bool include_stop_;
  std::string held_;
  bool stopped_ = false;
  int32_t stopped_by_ = -1;
};

}  // namespace pelton::engine
