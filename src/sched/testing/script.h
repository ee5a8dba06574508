// Turns any bytes into a scheduler's life: a configuration, arrivals, cancels, finishes and steps,
// run over the fake pages of simulator.h. Shared by the fuzz target and the property tests.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace pelton::sched::testing {

struct ScriptReport {
  std::string error;  // "" when every promise held
  int64_t steps = 0;
  int64_t preemptions = 0;
  int64_t prefix_hits = 0;
  int32_t requests = 0;
};

// Promises: integrity after each operation, each sequence reads its own history, a step makes
// progress while anything is live, every sequence ends exactly once within a bound, all blocks come
// back, and what was not cancelled has the tokens of a run of its own with room to spare.
ScriptReport run_script(std::span<const uint8_t> bytes);

}  // namespace pelton::sched::testing
