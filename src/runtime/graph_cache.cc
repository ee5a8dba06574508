#include "runtime/graph_cache.h"

#include <algorithm>

#include "base/check.h"

namespace pelton::runtime {

std::vector<int32_t> decode_buckets(int32_t max_rows) {
  std::vector<int32_t> buckets;
  for (int32_t rows = 1; rows < max_rows;) {
    buckets.push_back(rows);
    rows += rows < 8 ? rows : rows < 256 ? 8 : rows < 512 ? 32 : 256;
  }
  if (max_rows > 0) buckets.push_back(max_rows);
  return buckets;
}

size_t planned_graph_bytes(int32_t max_rows, int32_t layers) {
  // A graph's kernels and their parameters, as the driver keeps them: an estimate, meant to be
  // high.
  constexpr size_t kGraph = size_t{64} << 10;
  constexpr size_t kLayer = size_t{16} << 10;
  return decode_buckets(max_rows).size() * (kGraph + kLayer * static_cast<size_t>(layers));
}

GraphCache::GraphCache(int32_t max_rows) {
  for (const int32_t rows : decode_buckets(max_rows)) slots_.push_back({.rows = rows});
}

int32_t GraphCache::bucket(int32_t rows) const {
  if (!fault_.empty()) return 0;
  const auto found = std::ranges::lower_bound(slots_, rows, {}, &Slot::rows);
  return found == slots_.end() ? 0 : found->rows;
}

Status GraphCache::run(int32_t bucket, device::Stream& stream, FunctionRef<Status()> queue) {
  const auto slot = std::ranges::lower_bound(slots_, bucket, {}, &Slot::rows);
  check(slot != slots_.end() && slot->rows == bucket, "no such bucket of graphs");
  if (!slot->warm) {
    if (Status s = queue(); !s.ok()) return s;
    slot->warm = true;
    return {};
  }
  if (slot->graph == nullptr) {
    if (Status s = stream.begin_capture(); !s.ok()) return give_up(s, queue);
    capturing_ = true;
    const Status queued = queue();
    capturing_ = false;
    auto graph = stream.end_capture();
    if (!queued.ok() || !graph.ok()) {
      return give_up(queued.ok() ? graph.status() : queued, queue);
    }
    slot->graph = std::move(graph).value();
  }
  if (Status s = stream.launch(*slot->graph); !s.ok()) return s;
  ++replays_;
  return {};
}

Status GraphCache::give_up(const Status& why, FunctionRef<Status()> queue) {
  fault_ = why.message();
  for (Slot& slot : slots_) slot.graph.reset();
  return queue();
}

bool GraphCache::recover(device::Stream& stream) {
  if (!capturing_) return false;
  capturing_ = false;
  const auto dropped = stream.end_capture();
  fault_ = dropped.ok() ? "a kernel cannot be captured" : dropped.status().message();
  return true;
}

}  // namespace pelton::runtime
