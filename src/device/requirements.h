// What this build asks of a machine before it uses its GPU, as one line for who lacks it. Plain
// C++, so that the lines are the same and tested where there is no driver.
#pragma once

#include "device/caps.h"
#include "pelton/status.h"

namespace pelton::device {

// Versions as the CUDA runtime gives them: 1000 * major + 10 * minor; 0: there is no driver.
struct DriverVersions {
  int driver = 0;
  int runtime = 0;       // that this build is linked with
  bool refused = false;  // the runtime does not work with the driver
};

// Why no GPU could be counted, where that is a matter of the driver or of there being none.
Status explain_no_device(const DriverVersions& versions);
// OK when the build's machine code runs on such a GPU.
Status check_runs_on(const Caps& caps);

}  // namespace pelton::device
