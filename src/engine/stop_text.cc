#include "engine/stop_text.h"

#include <algorithm>
#include <utility>

namespace pelton::engine {

StopText::StopText(std::shared_ptr<const text::Tokenizer> tokenizer, std::vector<std::string> stops,
                   bool include_stop, bool skip_special_tokens)
    : detokenizer_(std::move(tokenizer), skip_special_tokens),
      stops_(std::move(stops)),
      include_stop_(include_stop) {}

std::string StopText::push(int32_t token) {
  if (stopped_) return {};
  held_ += detokenizer_.push(token);
  return release();
}

std::string StopText::finish() {
  if (stopped_) return {};
  held_ += detokenizer_.finish();
  std::string text = release();
  if (!stopped_) text += std::exchange(held_, {});
  return text;
}

std::string StopText::release() {
  // The stop that is complete first wins, as if text came a character at a time, so that the answer
  // does not depend on how tokens cut it; of those that end together, the longest.
  size_t cut = std::string::npos;
  size_t end = std::string::npos;
  for (size_t i = 0; i < stops_.size(); ++i) {
    const std::string& stop = stops_[i];
    if (stop.empty()) continue;
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const size_t stop_end = at + stop.size();
    if (stop_end < end || (stop_end == end && at < cut)) {
      cut = at;
      end = stop_end;
      stopped_by_ = static_cast<int32_t>(i);
    }
  }
  if (cut != std::string::npos) {
    stopped_ = true;
    held_.resize(include_stop_ ? end : cut);
    return std::exchange(held_, {});
  }
  // Longest tail that is a proper beginning of a stop string stays.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    if (stop.empty()) continue;
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) {
        keep = n;
        break;
      }
    }
  }
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return text;
}

}  // namespace pelton::engine
