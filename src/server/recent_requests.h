// The requests that ended last, for a dashboard: where their time went and how long they were.
// Neither texts nor anything else that a client sent.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "server/metrics.h"

namespace pelton::server {

struct RecentRequest {
  int64_t sequence = 0;  // 1, 2, ... in the order in which they ended
  double arrival = 0;    // seconds since the server's start
  RequestTimes times;
  Usage usage;
  RequestEnd end = RequestEnd::kStop;
};

class RecentRequests {
 public:
  static constexpr size_t kKept = 256;

  void add(RecentRequest request);  // numbers it
  // Those after `sequence` that are still kept, oldest first.
  std::vector<RecentRequest> since(int64_t sequence) const;
  int64_t last() const;

 private:
  mutable std::mutex mutex_;
  std::array<RecentRequest, kKept> ring_{};
  int64_t last_ = 0;
};

}  // namespace pelton::server
