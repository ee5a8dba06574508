// Threads for what must run neither on the engine's thread nor on the I/O thread: JSON, templates,
// tokenizing.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pelton::server {

class WorkerPool {
 public:
  explicit WorkerPool(int threads);
  ~WorkerPool();  // stops
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Tasks start in order. One that fails by InternalError or for want of memory ends alone; its
  // owner's destructor is what answers for it.
  void post(std::function<void()> task);
  // Ends what runs, drops what waits.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace pelton::server
