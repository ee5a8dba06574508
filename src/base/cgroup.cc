#include "base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

namespace pelton {
namespace {

namespace fs = std::filesystem;

// What one kind of hierarchy calls its files; those it has not are empty.
struct Hierarchy {
  std::string_view controller;  // of version 1; version 2 names none
  std::string_view cpu_quota;   // of version 2 with the period behind it
  std::string_view cpu_period;
  std::string_view memory;
};
constexpr Hierarchy kHierarchies[] = {{"", "cpu.max", "", "memory.max"},
                                      {"cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us", ""},
                                      {"memory", "", "", "memory.limit_in_bytes"}};

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

// Where it is mounted: version 2 beside version 1 in a folder of its own, version 1 by its list of
// controllers or by the link that distributions make.
fs::path mount_of(const fs::path& base, std::string_view controllers, const Hierarchy& hierarchy) {
  const fs::path listed = base / (controllers.empty() ? "unified" : controllers);
  std::error_code error;
  return fs::is_directory(listed, error) ? listed : base / hierarchy.controller;
}

// Of version 2 the list is empty, and so is the one name in it.
bool lists(std::string_view controllers, std::string_view controller) {
  while (true) {
    const size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == controller) return true;
    if (comma == std::string_view::npos) return false;
    controllers.remove_prefix(comma + 1);
  }
}

// The group, then those around it up to the mount. A path out of the namespace's own tree begins
// with "/..": of such only the mount is to be seen.
void read_chain(const Hierarchy& hierarchy, const fs::path& mount, const std::string& path,
                CgroupLimits* limits) {
  fs::path group = fs::path(path).relative_path().lexically_normal();
  if (group.native().starts_with("..")) group.clear();
  for (; !group.empty(); group = group.parent_path()) {
    read_group(hierarchy, mount / group, limits);
  }
  read_group(hierarchy, mount, limits);
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
    for (const Hierarchy& hierarchy : kHierarchies) {
      if (!lists(controllers, hierarchy.controller)) continue;
      read_chain(hierarchy, mount_of(base, controllers, hierarchy), path, &limits);
    }
  }
  return limits;
}

}  // namespace pelton
