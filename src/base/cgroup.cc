#include "base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

namespace pelton {
namespace {

namespace fs = std::filesystem;

// The files of one mounted hierarchy.
struct Hierarchy {
  fs::path mount;
  std::string cpu_quota;   // of version 2 with the period behind it
  std::string cpu_period;  // of version 1
  std::string memory;
};

// A number alone; no word such as "max" and no -1, which mean that nothing is limited.
std::optional<double> positive(const std::string& word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool is_whole = error == std::errc() && end == word.data() + word.size();
  return is_whole && value > 0 ? std::optional(value) : std::nullopt;
}

template <typename T>
void tighten(std::optional<T>* limit, T value) {
  *limit = std::min(limit->value_or(value), value);
}

void read_group(const Hierarchy& hierarchy, const fs::path& group, CgroupLimits* limits) {
  std::string quota;
  std::string period;
  if (!hierarchy.cpu_quota.empty()) {
    std::ifstream file(group / hierarchy.cpu_quota);
    file >> quota >> period;
    if (!hierarchy.cpu_period.empty()) std::ifstream(group / hierarchy.cpu_period) >> period;
  }
  const auto share = positive(quota);
  const auto whole = positive(period);
  if (share && whole) tighten(&limits->cpus, *share / *whole);
  std::string bytes;
  if (!hierarchy.memory.empty()) std::ifstream(group / hierarchy.memory) >> bytes;
  // Version 1 writes the largest multiple of a page for no limit.
  constexpr double kNoLimit = 0x1p62;
  const auto most = positive(bytes);
  if (most && *most < kNoLimit) tighten(&limits->memory_bytes, static_cast<size_t>(*most));
}

// The mount of a version 1 hierarchy that holds `controller`, by its list of controllers or by the
// link that distributions make.
fs::path mount_of(const fs::path& base, std::string_view controllers, std::string_view controller) {
  std::error_code error;
  const fs::path listed = base / controllers;
  return fs::is_directory(listed, error) ? listed : base / controller;
}

bool lists(std::string_view controllers, std::string_view controller) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == controller) return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

// The group, then those around it up to the mount. A path out of the namespace's own tree begins
// with "/..": of such only the mount is to be seen.
void read_chain(const Hierarchy& hierarchy, const std::string& path, CgroupLimits* limits) {
  fs::path group = fs::path(path).relative_path().lexically_normal();
  if (group.native().starts_with("..")) group.clear();
  for (; !group.empty(); group = group.parent_path()) {
    read_group(hierarchy, hierarchy.mount / group, limits);
  }
  read_group(hierarchy, hierarchy.mount, limits);
}

}  // namespace

CgroupLimits cgroup_limits(const fs::path& root) {
  const fs::path base = root / "sys/fs/cgroup";
  CgroupLimits limits;
  std::ifstream groups(root / "proc/self/cgroup");
  // Lines: number of the hierarchy, its controllers (version 2: none), the group's path.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      std::error_code error;
      const fs::path unified = base / "unified";  // beside version 1
      read_chain({.mount = fs::is_directory(unified, error) ? unified : base,
                  .cpu_quota = "cpu.max",
                  .cpu_period = "",
                  .memory = "memory.max"},
                 path, &limits);
    }
    if (lists(controllers, "cpu")) {
      read_chain({.mount = mount_of(base, controllers, "cpu"),
                  .cpu_quota = "cpu.cfs_quota_us",
                  .cpu_period = "cpu.cfs_period_us",
                  .memory = ""},
                 path, &limits);
    }
    if (lists(controllers, "memory")) {
      read_chain({.mount = mount_of(base, controllers, "memory"),
                  .cpu_quota = "",
                  .cpu_period = "",
                  .memory = "memory.limit_in_bytes"},
                 path, &limits);
    }
  }
  return limits;
}

}  // namespace pelton
