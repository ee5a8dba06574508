// Cuts a text/event-stream into the data of its events, however the bytes arrive.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/function_ref.h"

namespace pelton::bench_serve {

class SseReader {
 public:
  static constexpr size_t kMaxEventBytes = 16u << 20;

  // Calls `event` with the data of each event that these bytes complete; it stays valid during the
  // call. Lines end in LF, CRLF or CR. False when an event outgrows kMaxEventBytes.
  bool feed(std::string_view bytes, FunctionRef<void(std::string_view)> event);
  // An event that has begun and not ended.
  bool pending() const { return !line_.empty() || has_data_; }

 private:
  void take_line(FunctionRef<void(std::string_view)> event);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_cr_ = false;
};

}  // namespace pelton::bench_serve
