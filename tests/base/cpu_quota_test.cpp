#include "base/cpu_quota.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace danlu {
namespace {

class CpuQuota : public testing::Test {
 protected:
  CpuQuota() { std::filesystem::remove_all(root_); }
  ~CpuQuota() override { std::filesystem::remove_all(root_); }
  void put(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    write_file_atomic(root_ / file, text);
  }
  size_t quota() const { return cpu_quota(root_ / "cgroup", root_ / "membership"); }

  const std::filesystem::path root_ = std::filesystem::path(testing::TempDir()) / "danlu_cpu_quota";
};

TEST_F(CpuQuota, IsNoneWhereNothingSaysSo) {
  EXPECT_EQ(quota(), 0u);
  put("cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 0u);
}

TEST_F(CpuQuota, ReadsTheContainersOwnGroupAndRoundsUp) {
  put("cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 3u);
}

TEST_F(CpuQuota, TakesTheSmallestLimitOfAllAncestors) {
  put("membership", "0::/kubepods/pod1/c1\n");
  put("cgroup/kubepods/cpu.max", "6400000 100000\n");
  put("cgroup/kubepods/pod1/cpu.max", "200000 100000\n");
  put("cgroup/kubepods/pod1/c1/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 2u);
}

TEST_F(CpuQuota, ReadsVersionOne) {
  put("membership", "4:memory:/m\n3:cpu,cpuacct:/docker/x\n");
  put("cgroup/memory/m/cpu.cfs_quota_us", "100000\n");
  put("cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "400000\n");
  put("cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 4u);
  put("cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota(), 0u);
}

}  // namespace
}  // namespace danlu
