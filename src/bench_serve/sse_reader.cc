#include "bench_serve/sse_reader.h"

namespace pelton::bench_serve {

bool SseReader::feed(std::string_view bytes, FunctionRef<void(std::string_view)> event) {
  while (!bytes.empty()) {
    if (after_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_cr_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    if (line_.size() + data_.size() > kMaxEventBytes) return false;
    if (end == std::string_view::npos) return true;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    take_line(event);
    line_.clear();
  }
  return true;
}

void SseReader::take_line(FunctionRef<void(std::string_view)> event) {
  if (line_.empty()) {
    if (has_data_) event(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  constexpr std::string_view kData = "data:";
  std::string_view line = line_;
  if (line.substr(0, kData.size()) != kData) return;
  line.remove_prefix(kData.size());
  if (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
}

}  // namespace pelton::bench_serve
