#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <system_error>

#include "base/cgroup.h"
#include "base/check.h"

namespace pelton {
namespace {

// About 50 microseconds: longer than the serial gap between two products of a step, shorter than a
// scheduler tick.
constexpr int kSpins = 4000;
// The caller's patience with workers that still compute: most of the last items of a prompt's
// products.
constexpr int kCallerSpins = 20000;

void pause_cpu() { __builtin_ia32_pause(); }

uint64_t pack(uint32_t begin, uint32_t end) { return (uint64_t{end} << 32) | begin; }
uint32_t range_begin(uint64_t range) { return static_cast<uint32_t>(range); }
uint32_t range_end(uint64_t range) { return static_cast<uint32_t>(range >> 32); }

}  // namespace

int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int count = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof(set), &set) == 0) count = CPU_COUNT(&set);
  if (const auto cpus = cgroup_limits().cpus)
    count = static_cast<int>(std::min<double>(count, std::round(*cpus)));
  return std::clamp(count, 1, 1024);
}

ThreadPool::ThreadPool(int threads) : lanes_(static_cast<size_t>(threads)) {
  check(threads >= 1 && threads <= 1024, "a pool has 1 to 1024 threads");
  workers_.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int t = 1; t < threads; ++t) workers_.emplace_back([this, t] { worker(t); });
  } catch (const std::system_error&) {
    join();  // those that did start
    throw std::bad_alloc();
  }
}

ThreadPool::~ThreadPool() { join(); }

void ThreadPool::join() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& t : workers_) t.join();
}

bool ThreadPool::claim(int thread, int64_t* item) {
  // Own run from its front, then the others' from their tails.
  const int n = size();
  for (int offset = 0; offset < n; ++offset) {
    Lane& lane = lanes_[static_cast<size_t>((thread + offset) % n)];
    uint64_t range = lane.range.load(std::memory_order_relaxed);
    while (range_begin(range) < range_end(range)) {
      const uint32_t begin = range_begin(range);
      const uint32_t end = range_end(range);
      const uint64_t next = offset == 0 ? pack(begin + 1, end) : pack(begin, end - 1);
      if (lane.range.compare_exchange_weak(range, next, std::memory_order_relaxed)) {
        *item = offset == 0 ? begin : end - 1;
        return true;
      }
    }
  }
  return false;
}

void ThreadPool::work(int thread) {
  int64_t item;
  while (claim(thread, &item)) {
    if (failed_.load(std::memory_order_relaxed)) continue;  // drain quickly
    try {
      (*job_)(item, thread);
    } catch (...) {
      if (!failed_.exchange(true)) failure_ = std::current_exception();
    }
  }
}

void ThreadPool::worker(int thread) {
  uint32_t seen = 0;
  while (true) {
    int spins = 0;
    while (epoch_.load(std::memory_order_acquire) == seen) {
      if (++spins < kSpins) {
        pause_cpu();
      } else {
        sleeping_.fetch_add(1);
        epoch_.wait(seen);
        sleeping_.fetch_sub(1);
      }
    }
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    // Sequentially consistent with the caller, who closes the job and then reads inside_: either it
    // sees this worker and waits, or the worker sees the job closed and touches nothing of it.
    inside_.fetch_add(1);
    if (open_.load()) work(thread);
    if (inside_.fetch_sub(1) == 1) inside_.notify_one();
  }
}

void ThreadPool::parallel_for(int64_t n, FunctionRef<void(int64_t, int)> item) {
  if (n <= 0) return;
  check(n < (int64_t{1} << 31), "too many items for one job");
  const int threads = size();
  if (threads == 1 || n == 1) {
    for (int64_t i = 0; i < n; ++i) item(i, 0);
    return;
  }
  job_ = &item;
  failed_.store(false, std::memory_order_relaxed);
  for (int t = 0; t < threads; ++t) {
    const auto begin = static_cast<uint32_t>(n * t / threads);
    const auto end = static_cast<uint32_t>(n * (t + 1) / threads);
    lanes_[static_cast<size_t>(t)].range.store(pack(begin, end), std::memory_order_relaxed);
  }
  open_.store(true);
  epoch_.fetch_add(1);  // sequentially consistent with sleeping_, so that no sleeper is missed
  if (sleeping_.load() > 0) epoch_.notify_all();
  work(0);
  open_.store(false);
  int spins = 0;
  for (int inside = inside_.load(); inside > 0; inside = inside_.load()) {
    if (++spins < kCallerSpins) {
      pause_cpu();
    } else {
      inside_.wait(inside);  // a worker lost its core in the middle of an item: leave it this one
    }
  }
  job_ = nullptr;
  if (failed_.load()) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace pelton
