// base/cpu_quota.h: how many CPUs a container may use, which its affinity mask does not say.
#pragma once
#include <cstddef>
#include <filesystem>

namespace danlu {

/// The smallest CPU bandwidth limit of this process's control groups, in whole CPUs, rounded up;
/// 0: none. Version 2 (`cpu.max`) and version 1 (`cpu.cfs_quota_us`, `cpu.cfs_period_us`).
/// `membership` is /proc/self/cgroup, `root` where the hierarchy is mounted; what cannot be read
/// sets no limit. Source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/cpu*.
size_t cpu_quota(const std::filesystem::path& root = "/sys/fs/cgroup",
                 const std::filesystem::path& membership = "/proc/self/cgroup");

}  // namespace danlu
