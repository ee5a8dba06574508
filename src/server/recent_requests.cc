#include "server/recent_requests.h"

#include <algorithm>

namespace pelton::server {

void RecentRequests::add(RecentRequest request) {
  const std::lock_guard lock(mutex_);
  request.sequence = ++last_;
  ring_[static_cast<size_t>(last_) % kKept] = request;
}

std::vector<RecentRequest> RecentRequests::since(int64_t sequence) const {
  const std::lock_guard lock(mutex_);
  const int64_t oldest = std::max<int64_t>(1, last_ - static_cast<int64_t>(kKept) + 1);
  std::vector<RecentRequest> out;
  // A number beyond the last one is of a server before this one: everything is new to its asker.
  const int64_t first = sequence > last_ ? oldest : std::max(oldest, sequence + 1);
  for (int64_t i = first; i <= last_; ++i) out.push_back(ring_[static_cast<size_t>(i) % kKept]);
  return out;
}

int64_t RecentRequests::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

}  // namespace pelton::server
