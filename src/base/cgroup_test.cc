#include "base/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace pelton {
namespace {

namespace fs = std::filesystem;

// A root directory with the files of control groups in it.
class Cgroup : public ::testing::Test {
 protected:
  void put(const char* path, const char* text) const {
    fs::create_directories((dir_.path() / path).parent_path());
    dir_.write(path, text);
  }
  CgroupLimits limits() const { return cgroup_limits(dir_.path()); }

  const pelton::testing::TempDir dir_;
};

TEST_F(Cgroup, NothingThereLimitsNothing) {
  EXPECT_EQ(limits().cpus, std::nullopt);
  EXPECT_EQ(limits().memory_bytes, std::nullopt);
}

TEST_F(Cgroup, TheTightestOfTheGroupsAroundAProcessCounts) {
  put("proc/self/cgroup", "0::/system.slice/pelton.service\n");
  put("sys/fs/cgroup/cpu.max", "max 100000\n");
  put("sys/fs/cgroup/system.slice/cpu.max", "150000 100000\n");
  put("sys/fs/cgroup/system.slice/memory.max", "8589934592\n");
  put("sys/fs/cgroup/system.slice/pelton.service/cpu.max", "400000 100000\n");
  put("sys/fs/cgroup/system.slice/pelton.service/memory.max", "1073741824\n");
  put("sys/fs/cgroup/other.slice/memory.max", "4096\n");
  EXPECT_EQ(limits().cpus, 1.5);
  EXPECT_EQ(limits().memory_bytes, size_t{1} << 30);
}

TEST_F(Cgroup, InANamespaceOfItsOwnTheRootIsTheGroup) {
  put("proc/self/cgroup", "0::/\n");
  put("sys/fs/cgroup/cpu.max", "50000 100000\n");
  put("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(limits().cpus, 0.5);
  EXPECT_EQ(limits().memory_bytes, std::nullopt);
}

TEST_F(Cgroup, OutsideTheNamespaceOnlyTheMountIsSeen) {
  put("proc/self/cgroup", "0::/../../elsewhere\n");
  put("sys/fs/cgroup/memory.max", "2048\n");
  put("elsewhere/memory.max", "1\n");
  EXPECT_EQ(limits().memory_bytes, size_t{2048});
}

TEST_F(Cgroup, VersionOneHasAHierarchyForEachController) {
  put("proc/self/cgroup",
      "5:cpuset:/\n4:cpu,cpuacct:/jobs/a\n3:memory:/jobs\n1:name=systemd:/\n0::/\n");
  put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  put("sys/fs/cgroup/cpu,cpuacct/jobs/a/cpu.cfs_quota_us", "300000\n");
  put("sys/fs/cgroup/cpu,cpuacct/jobs/a/cpu.cfs_period_us", "100000\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "1048576\n");
  EXPECT_EQ(limits().cpus, 3.0);
  EXPECT_EQ(limits().memory_bytes, size_t{1} << 20);
}

TEST_F(Cgroup, WhatIsNoNumberLimitsNothing) {
  put("proc/self/cgroup", "0::/a\nnonsense\n1:\n");
  put("sys/fs/cgroup/a/cpu.max", "12x 100000\n");
  put("sys/fs/cgroup/a/memory.max", "-5\n");
  EXPECT_EQ(limits().cpus, std::nullopt);
  EXPECT_EQ(limits().memory_bytes, std::nullopt);
}

}  // namespace
}  // namespace pelton
