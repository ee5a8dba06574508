#include "diag/windows.h"

#include <fmt/format.h>

namespace pelton::diag {

std::vector<int32_t> encode_documents(const text::Tokenizer& tokenizer, const std::string& text,
                                      int32_t end_id) {
  constexpr std::string_view kSeparator = "\n\f\n";
  // As the reference libraries encode a text: control tokens that it spells are control tokens.
  const text::EncodeOptions plain{.add_special_tokens = false, .parse_special = true};
  if (text.find(kSeparator) == std::string::npos) return tokenizer.encode(text, plain);
  std::vector<int32_t> ids;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(kSeparator, begin), text.size());
    const std::vector<int32_t> document =
        tokenizer.encode(std::string_view(text).substr(begin, end - begin), plain);
    ids.insert(ids.end(), document.begin(), document.end());
    ids.push_back(end_id);
    begin = end + kSeparator.size();
  }
  return ids;
}

Result<std::vector<Window>> cut_windows(const std::vector<int32_t>& ids, int32_t length,
                                        int32_t limit) {
  std::vector<Window> windows;
  const auto n = static_cast<size_t>(length);
  for (size_t begin = 0; begin + n < ids.size(); begin += n) {
    if (limit > 0 && static_cast<int32_t>(windows.size()) == limit) break;
    const auto first = ids.begin() + static_cast<std::ptrdiff_t>(begin);
    windows.push_back({{first, first + length}, {first + 1, first + 1 + length}});
  }
  if (windows.empty()) {
    return invalid_argument(
        fmt::format("the text has {} tokens; one window needs {}", ids.size(), length + 1));
  }
  return windows;
}

}  // namespace pelton::diag
