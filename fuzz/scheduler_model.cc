// The scheduler under arbitrary arrivals, cancels, finishes and pool sizes, over fake pages that
// show every wrongly shared block.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "sched/testing/script.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto report = pelton::sched::testing::run_script(std::span(data, size));
  if (!report.error.empty()) {
    std::fprintf(stderr, "%s\n", report.error.c_str());
    std::abort();
  }
  return 0;
}
