// pelton plan: what a model needs on this machine, from headers alone.
#pragma once

#include "cli/common.h"

namespace pelton::cli {

struct PlanOptions {
  CommonOptions common;
};

Status run_plan(const PlanOptions& options);

}  // namespace pelton::cli
