#include "tests/support/allocation_hook.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace pelton::testing {
namespace {

std::atomic<bool> g_counting{false};
std::atomic<uint64_t> g_calls{0};
std::atomic<uint64_t> g_bytes{0};
std::atomic<int64_t> g_live{0};
std::atomic<int64_t> g_peak{0};

std::atomic<uint64_t> g_until_failure{0};  // 0: none is armed
std::atomic<bool> g_from_then_on{false};
std::atomic<bool> g_happened{false};

bool must_fail() {
  uint64_t left = g_until_failure.load(std::memory_order_relaxed);
  while (left > 1) {
    if (g_until_failure.compare_exchange_weak(left, left - 1)) return false;
  }
  if (left == 0) return false;
  if (!g_from_then_on.load() && !g_until_failure.compare_exchange_strong(left, 0)) return false;
  g_happened.store(true);
  return true;
}

void count(void* memory, size_t size) {
  g_calls.fetch_add(1);
  g_bytes.fetch_add(size);
  const auto usable = static_cast<int64_t>(malloc_usable_size(memory));
  const int64_t live = g_live.fetch_add(usable) + usable;
  int64_t peak = g_peak.load();
  while (live > peak && !g_peak.compare_exchange_weak(peak, live)) {
  }
}

void* take(size_t size, size_t alignment) {
  if (must_fail()) return nullptr;
  if (size == 0) size = 1;
  void* memory =
      alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__
          ? std::malloc(size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory != nullptr && g_counting.load(std::memory_order_relaxed)) count(memory, size);
  return memory;
}

void* take_or_throw(size_t size, size_t alignment) {
  void* memory = take(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void give(void* memory) {
  if (memory == nullptr) return;
  if (g_counting.load(std::memory_order_relaxed))
    g_live.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)));
  std::free(memory);
}

}  // namespace

AllocationCounter::AllocationCounter() {
  g_calls = 0;
  g_bytes = 0;
  g_live = 0;
  g_peak = 0;
  g_counting = true;
}
AllocationCounter::~AllocationCounter() { g_counting = false; }
uint64_t AllocationCounter::calls() const { return g_calls; }
uint64_t AllocationCounter::bytes() const { return g_bytes; }
int64_t AllocationCounter::live_bytes() const { return g_live; }
int64_t AllocationCounter::peak_bytes() const { return g_peak; }

AllocationFailure::AllocationFailure(uint64_t k, Mode mode) {
  g_happened = false;
  g_from_then_on = mode == Mode::kFromThenOn;
  g_until_failure = k;
}
AllocationFailure::~AllocationFailure() { g_until_failure = 0; }
bool AllocationFailure::happened() const { return g_happened; }

}  // namespace pelton::testing

using pelton::testing::give;
using pelton::testing::take;
using pelton::testing::take_or_throw;

constexpr size_t kDefaultAlignment = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

void* operator new(size_t size) { return take_or_throw(size, kDefaultAlignment); }
void* operator new[](size_t size) { return take_or_throw(size, kDefaultAlignment); }
void* operator new(size_t size, std::align_val_t alignment) {
  return take_or_throw(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return take_or_throw(size, static_cast<size_t>(alignment));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return take(size, kDefaultAlignment);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return take(size, kDefaultAlignment);
}
void* operator new(size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return take(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return take(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { give(memory); }
void operator delete[](void* memory) noexcept { give(memory); }
void operator delete(void* memory, size_t) noexcept { give(memory); }
void operator delete[](void* memory, size_t) noexcept { give(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { give(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { give(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { give(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { give(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { give(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  give(memory);
}
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  give(memory);
}
