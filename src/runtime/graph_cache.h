// Captured decode steps: one graph a bucket of rows, made when a bucket is met for the second time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "device/stream.h"

namespace pelton::runtime {

// Rows that decode steps of up to `max_rows` sequences are padded to, ascending; the last is
// max_rows.
std::vector<int32_t> decode_buckets(int32_t max_rows);
// Device memory that the graphs of a model of so many layers take at most, for all buckets.
size_t planned_graph_bytes(int32_t max_rows, int32_t layers);

class GraphCache {
 public:
  // `max_rows` 0: no graphs.
  explicit GraphCache(int32_t max_rows = 0);

  // The bucket that holds `rows`; 0 when there is none, or graphs were given up.
  int32_t bucket(int32_t rows) const;
  // Runs `queue`, which queues a step of the bucket's rows and nothing else: the first time as it
  // is, so that kernels can prepare what a capture does not allow; the second time noted down and
  // launched; from then on as one launch. Where capturing fails graphs are given up and the step
  // runs as it is.
  Status run(int32_t bucket, device::Stream& stream, FunctionRef<Status()> queue);
  // After `queue` was left by an exception: ends a capture under way and gives graphs up. False
  // when there was none.
  bool recover(device::Stream& stream);

  // Why graphs were given up; empty while they are in use.
  const std::string& fault() const { return fault_; }
  int64_t replays() const { return replays_; }

 private:
  struct Slot {
    int32_t rows = 0;
    bool warm = false;
    std::unique_ptr<device::Graph> graph = {};
  };
  Status give_up(const Status& why, FunctionRef<Status()> queue);

  std::vector<Slot> slots_;
  bool capturing_ = false;
  std::string fault_;
  int64_t replays_ = 0;
};

}  // namespace pelton::runtime
