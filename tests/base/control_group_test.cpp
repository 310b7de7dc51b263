#include "base/control_group.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/file.h"
#include "support/temporary_directory.h"

namespace danlu {
namespace {

class ControlGroup : public testing::Test {
 protected:
  void put(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    write_file_atomic(root_ / file, text);
  }
  SystemFiles files() const { return {root_ / "cgroup", root_ / "membership", root_ / "meminfo"}; }
  size_t quota() const { return cpu_quota(files()); }

  const test::TemporaryDirectory root_;
};

TEST_F(ControlGroup, IsNoneWhereNothingSaysSo) {
  EXPECT_EQ(quota(), 0u);
  put("cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 0u);
}

TEST_F(ControlGroup, ReadsTheContainersOwnGroupAndRoundsUp) {
  put("cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 3u);
}

TEST_F(ControlGroup, TakesTheSmallestLimitOfAllAncestors) {
  put("membership", "0::/kubepods/pod1/c1\n");
  put("cgroup/kubepods/cpu.max", "6400000 100000\n");
  put("cgroup/kubepods/pod1/cpu.max", "200000 100000\n");
  put("cgroup/kubepods/pod1/c1/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 2u);
}

TEST_F(ControlGroup, ReadsVersionOne) {
  put("membership", "4:memory:/m\n3:cpu,cpuacct:/docker/x\n");
  put("cgroup/memory/m/cpu.cfs_quota_us", "100000\n");
  put("cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "400000\n");
  put("cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 4u);
  put("cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota(), 0u);
}

TEST_F(ControlGroup, MemoryIsUnknownWhereNothingSaysSo) {
  EXPECT_EQ(available_memory_bytes(1, files()), 0u);
}

TEST_F(ControlGroup, MemoryIsTheKernelsFigureWithoutALimit) {
  put("meminfo", "MemTotal:       2000 kB\nMemFree: 10 kB\nMemAvailable:    1000 kB\n");
  put("cgroup/memory.max", "max\n");
  put("cgroup/memory.current", "5\n");
  EXPECT_EQ(available_memory_bytes(1, files()), 1000u * 1024);
  EXPECT_EQ(available_memory_bytes(4, files()), 250u * 1024);
}

TEST_F(ControlGroup, MemoryIsWhatTheTightestGroupLeaves) {
  put("meminfo", "MemAvailable:    1000000 kB\n");
  put("membership", "0::/pod/c1\n");
  put("cgroup/pod/memory.max", "900000\n");
  put("cgroup/pod/memory.current", "800000\n");
  put("cgroup/pod/memory.stat", "anon 1\ninactive_file 300000\n");
  put("cgroup/pod/c1/memory.max", "700000\n");
  put("cgroup/pod/c1/memory.current", "10\n");
  EXPECT_EQ(available_memory_bytes(1, files()), 400000u);
}

TEST_F(ControlGroup, ReadsMemoryOfVersionOne) {
  put("membership", "4:memory:/m\n3:cpu,cpuacct:/docker/x\n");
  put("cgroup/memory/m/memory.limit_in_bytes", "5000\n");
  put("cgroup/memory/m/memory.usage_in_bytes", "6000\n");
  put("cgroup/memory/m/memory.stat", "inactive_file 1\ntotal_inactive_file 3000\n");
  EXPECT_EQ(available_memory_bytes(1, files()), 2000u);
}

TEST_F(ControlGroup, MemoryIsNoMoreThanTheProcesssOwnLimitsLeave) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own memory does not fit the limit";
#endif
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(resource, &before), 0);
    const rlimit limit{rlim_t{1} << 40, before.rlim_max};
    ASSERT_EQ(::setrlimit(resource, &limit), 0);
    const uint64_t left = available_memory_bytes(8, files());
    ::setrlimit(resource, &before);
    // Each process has its own: nothing of it is others'.
    EXPECT_GT(left, limit.rlim_cur / 2);
    EXPECT_LT(left, limit.rlim_cur);
  }
}

}  // namespace
}  // namespace danlu
