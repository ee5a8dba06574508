#include "memory/step_arena.h"

#include <algorithm>

#include "base/check.h"

namespace pelton::memory {

void* StepArena::allocate(size_t bytes) {
  const size_t begin = used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  peak_ = std::max(peak_, used_);
  if (is_counting()) return reinterpret_cast<void*>(kAlignment + begin);
  check(used_ <= capacity_, "step scratch exceeds its plan");
  return base_ + begin;
}

}  // namespace pelton::memory
