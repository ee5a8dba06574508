#include "tests/fault/kth_failure.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <optional>
#include <string_view>
#include <vector>

#include "tests/support/allocation_hook.h"

namespace pelton::testing {
namespace {

std::vector<uint64_t> choose(uint64_t allocations, uint64_t budget) {
  const char* everything = std::getenv("PELTON_LONG_TESTS");
  if (everything != nullptr && std::string_view(everything) == "1") budget = allocations;
  std::vector<uint64_t> chosen;
  const uint64_t edge = budget / 4;
  const uint64_t stride =
      allocations <= budget ? 1 : (allocations - 2 * edge) / (budget - 2 * edge) + 1;
  for (uint64_t k = 1; k <= allocations; k += k <= edge || k + edge > allocations ? 1 : stride)
    chosen.push_back(k);
  return chosen;
}

// Absent: std::bad_alloc left the operation.
std::optional<StatusCode> outcome(FunctionRef<Status()> operation) {
  try {
    return operation().code();
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

void fail_one(FunctionRef<Status()> operation, uint64_t k, AllocationFailure::Mode mode) {
  int64_t left = 0;
  bool happened = false;
  std::optional<StatusCode> code;
  {
    const AllocationCounter memory;
    {
      const AllocationFailure failure(k, mode);
      code = outcome(operation);
      happened = failure.happened();
    }
    left = memory.live_bytes();
  }
  const std::string_view name = mode == AllocationFailure::Mode::kOnce ? "once" : "from then on";
  EXPECT_EQ(left, 0) << "allocation " << k << " failing " << name << " leaks";
  const bool clean = !code || *code == StatusCode::kResourceExhausted || *code == StatusCode::kOk;
  EXPECT_TRUE(clean) << "allocation " << k << " failing " << name << " gives "
                     << status_code_name(code.value_or(StatusCode::kOk));
  EXPECT_TRUE(happened || code == StatusCode::kOk) << "allocation " << k;
}

}  // namespace

uint64_t fail_each_allocation(FunctionRef<Status()> operation, const KthFailureOptions& options) {
  // The first run also fills whatever the process keeps for good.
  const Status whole = operation();
  EXPECT_TRUE(whole.ok()) << whole.to_string();
  if (!whole.ok()) return 0;
  uint64_t allocations = 0;
  {
    const AllocationCounter memory;
    EXPECT_TRUE(operation().ok());
    allocations = memory.calls();
    EXPECT_EQ(memory.live_bytes(), 0) << "leaks without any fault";
  }
  for (uint64_t k : choose(allocations, options.budget)) {
    fail_one(operation, k, AllocationFailure::Mode::kOnce);
    fail_one(operation, k, AllocationFailure::Mode::kFromThenOn);
    if (::testing::Test::HasFailure()) break;  // one is enough to look at
  }
  return allocations;
}

}  // namespace pelton::testing
