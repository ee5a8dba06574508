// Runs an operation with its 1st, 2nd, 3rd... allocation failing. Needs allocation_hook.cc in the
// binary.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "pelton/status.h"

namespace pelton::testing {

struct KthFailureOptions {
  // Operations with more allocations than this are sampled: the first and last quarter of the
  // budget one by one, the rest evenly between. PELTON_LONG_TESTS=1 takes every k.
  uint64_t budget = 400;
};

// `operation` does all its work and gives everything back before it returns. Without a fault it
// must succeed. With one it must end in kResourceExhausted (std::bad_alloc that leaves it counts as
// that, as in a command's main), or succeed where the allocation was dispensable; never crash, and
// every byte it took must be given back. Failures are reported to GoogleTest. Returns the number of
// allocations of a run without a fault.
uint64_t fail_each_allocation(FunctionRef<Status()> operation,
                              const KthFailureOptions& options = {});

}  // namespace pelton::testing
