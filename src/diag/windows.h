// Texts as the windows that quality is measured on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace pelton::diag {

// Documents of `text` (separated by a line holding only a form feed) encoded one by one without
// special tokens, each followed by `end_id`, joined. A text of one document is encoded as it
// stands, with nothing after it.
std::vector<int32_t> encode_documents(const text::Tokenizer& tokenizer, const std::string& text,
                                      int32_t end_id);

// Non-overlapping windows of `length` predictions: window i holds ids length * i .. length * i +
// length, so each but the last id of a window predicts the next. At most `limit` windows when limit
// > 0.
struct Window {
  std::vector<int32_t> inputs;   // [length]
  std::vector<int32_t> targets;  // [length]
};
Result<std::vector<Window>> cut_windows(const std::vector<int32_t>& ids, int32_t length,
                                        int32_t limit);

}  // namespace pelton::diag
