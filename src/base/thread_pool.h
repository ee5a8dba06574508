// Fork-join pool of a fixed number of threads, the calling thread included. Work is cut into items;
// each thread owns a contiguous run of them and, when done, steals from the tail of the others. The
// end of a job waits for the items that were begun, not for workers that got no processor in time,
// so a busy neighbour on one core delays only the item it holds. What an item computes must not
// depend on which thread runs it: callers split output rows, never a reduction, so results are the
// same for every thread count.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace pelton {

// Threads this process may really run at once: affinity mask and cgroup CPU quota, at least 1.
int available_threads();

class ThreadPool {
 public:
  // `threads` >= 1. Starts threads - 1 workers, which spin for a short while between jobs and then
  // sleep. std::bad_alloc where the system gives no more threads.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(lanes_.size()); }

  // Calls item(i, thread) once for each i in [0, n), thread in [0, size()); returns when all are
  // done. The first exception thrown by an item is rethrown here, after every thread has stopped.
  // Not reentrant: one caller at a time, and an item must not call back into the pool. Does not
  // allocate.
  void parallel_for(int64_t n, FunctionRef<void(int64_t item, int thread)> item);

 private:
  // One cache line a thread: the next item of its own run and that run's end, packed so that owner
  // and thieves claim with one compare-exchange.
  struct alignas(64) Lane {
    std::atomic<uint64_t> range{0};  // begin in the low half, end in the high half
  };

  void join();
  void worker(int thread);
  void work(int thread);
  bool claim(int thread, int64_t* item);

  std::vector<Lane> lanes_;
  const FunctionRef<void(int64_t, int)>* job_ = nullptr;
  alignas(64) std::atomic<uint32_t> epoch_{
      0};  // one more for every job; futex word of sleeping workers
  alignas(64) std::atomic<int> inside_{0};  // workers that claim items or are about to look
  std::atomic<bool> open_{false};           // a job may be entered
  alignas(64) std::atomic<int> sleeping_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  std::vector<std::thread> workers_;
};

}  // namespace pelton
