// pelton plan: what a model needs on this machine, from headers alone.
#pragma once

#include "cli/common.h"

namespace pelton::cli {

struct PlanOptions {
  CommonOptions common;
};

// Memory of this machine, or of the control group where that is less.
struct MachineMemory {
  size_t total = 0;
  size_t available = 0;
};
MachineMemory machine_memory();

Status run_plan(const PlanOptions& options);

}  // namespace pelton::cli
