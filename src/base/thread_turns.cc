#include "base/thread_turns.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pelton {
namespace {

// The kernel's struct sched_attr as far as its first version goes; the C library has none.
struct SchedAttributes {
  uint32_t size = sizeof(SchedAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;  // of ordinary threads: nanoseconds of a turn
  uint64_t deadline = 0;
  uint64_t period = 0;
};

constexpr uint64_t kShortestTurn = 100'000;  // the kernel's own lower bound

}  // namespace

uint64_t turn_nanoseconds() {
  SchedAttributes now;
  return syscall(SYS_sched_getattr, 0, &now, sizeof(now), 0) == 0 ? now.runtime : 0;
}

void prefer_short_turns() {
  SchedAttributes now;
  if (syscall(SYS_sched_getattr, 0, &now, sizeof(now), 0) != 0 || now.policy != SCHED_OTHER) return;
  now.size = sizeof(now);
  now.flags = 0;
  now.runtime = kShortestTurn;
  syscall(SYS_sched_setattr, 0, &now, 0);
}

}  // namespace pelton
