// Counts allocations and makes a chosen one fail. A test binary that compiles allocation_hook.cc
// has its operator new and delete replaced; both are process-wide and thread-safe, and do nothing
// but forward to malloc while no scope below is alive. Scopes do not nest.
#pragma once

#include <cstdint>

namespace pelton::testing {

// Allocations through operator new, by any thread, since construction.
class AllocationCounter {
 public:
  AllocationCounter();
  ~AllocationCounter();
  AllocationCounter(const AllocationCounter&) = delete;
  AllocationCounter& operator=(const AllocationCounter&) = delete;

  uint64_t calls() const;
  uint64_t bytes() const;      // asked for, whether freed or not
  int64_t live_bytes() const;  // taken and not given back; negative when older memory was freed
  int64_t peak_bytes() const;  // highest live_bytes()
};

// The k-th allocation from construction on (the first is 1) throws std::bad_alloc: once, or it and
// all after it.
class AllocationFailure {
 public:
  enum class Mode { kOnce, kFromThenOn };
  AllocationFailure(uint64_t k, Mode mode);
  ~AllocationFailure();
  AllocationFailure(const AllocationFailure&) = delete;
  AllocationFailure& operator=(const AllocationFailure&) = delete;

  bool happened() const;
};

}  // namespace pelton::testing
