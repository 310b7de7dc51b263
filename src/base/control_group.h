// base/control_group.h: what a container may use of the machine, which the machine does not say.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace danlu {

/// Where Linux says it. What cannot be read sets no limit.
struct SystemFiles {
  std::filesystem::path groups = "/sys/fs/cgroup";
  std::filesystem::path membership = "/proc/self/cgroup";
  std::filesystem::path memory = "/proc/meminfo";
};

/// The smallest CPU bandwidth limit of this process's control groups, in whole CPUs, rounded up;
/// 0: none. Version 2 (`cpu.max`) and version 1 (`cpu.cfs_quota_us`, `cpu.cfs_period_us`).
/// Source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.
size_t cpu_quota(const SystemFiles& files = {});

/// Bytes this process may still take: a share, one of `sharers`, of the kernel's MemAvailable, or
/// of what its control groups leave (`memory.max`, `memory.limit_in_bytes`, less what is in use and
/// cannot be dropped); or what its own limits of address space and data leave (RLIMIT_AS,
/// RLIMIT_DATA); whichever is least. 0: unknown.
uint64_t available_memory_bytes(uint64_t sharers = 1, const SystemFiles& files = {});

}  // namespace danlu
