#include "device/requirements.h"

#include <fmt/format.h>

namespace pelton::device {

Status explain_no_device(const DriverVersions& versions) {
  if (versions.driver == 0) return unsupported("no NVIDIA driver on this machine");
  if (versions.refused) {
    return unsupported(
        fmt::format("the NVIDIA driver is too old: it knows CUDA {}.{}, this build needs {}.{}",
                    versions.driver / 1000, versions.driver % 1000 / 10, versions.runtime / 1000,
                    versions.runtime % 1000 / 10));
  }
  return unsupported("no NVIDIA GPU is visible on this machine");
}

Status check_runs_on(const Caps& caps) {
  if (caps.is_hopper()) return {};
  return unsupported(fmt::format("{} has compute capability {}.{}; this build runs on 9.0",
                                 caps.name, caps.compute_major, caps.compute_minor));
}

}  // namespace pelton::device
