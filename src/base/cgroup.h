// What control groups allow this process: the tightest of its own group's limits and those of all
// groups around it, of versions 1 and 2 (Linux, Documentation/admin-guide/cgroup-v2.rst).
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

namespace pelton {

struct CgroupLimits {
  std::optional<double> cpus;  // processors' worth of time, as a fraction
  std::optional<size_t> memory_bytes;
};

// What cannot be read limits nothing. `root` stands for /.
CgroupLimits cgroup_limits(const std::filesystem::path& root = "/");

}  // namespace pelton
