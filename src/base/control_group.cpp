#include "base/control_group.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <string>

namespace danlu {
namespace {

namespace fs = std::filesystem;

using GroupVisitor = std::function<void(const fs::path& group)>;

/// Calls `visit` with every group whose limits hold for this process: its own and all ancestors.
void for_each_group(const SystemFiles& files, const std::string& controller,
                    const GroupVisitor& visit) {
  // In a container the mount shows the process's own group as the root.
  visit(files.groups);
  visit(files.groups / controller);
  // Lines "id:controllers:/path"; version 2 has id 0 and no controllers.
  std::ifstream lines(files.membership);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool concerned =
        ("," + controllers + ",").find("," + controller + ",") != std::string::npos;
    if (!controllers.empty() && !concerned) continue;
    fs::path group = controllers.empty() ? files.groups : files.groups / controllers;
    for (const fs::path& part : fs::path(line.substr(second + 1)).relative_path()) {
      group /= part;
      visit(group);
    }
  }
}

/// CPUs of one group's limit; 0: none.
double cpus_of(const fs::path& group) {
  double quota = 0, period = 0;
  std::string word;
  if (std::ifstream file(group / "cpu.max"); file >> word >> period) {
    // "max" stands for no limit.
    if (word != "max") quota = std::strtod(word.c_str(), nullptr);
  } else {
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

/// The number in a file, or after `key` in one of "key number" lines. Empty: not there, or "max".
std::optional<uint64_t> number_in(const fs::path& path, const std::string& key = "") {
  std::ifstream file(path);
  uint64_t number = 0;
  if (key.empty()) return file >> number ? std::optional(number) : std::nullopt;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key) && line.size() > key.size())
      return std::strtoull(line.c_str() + key.size(), nullptr, 10);
  }
  return std::nullopt;
}

/// Bytes one group leaves. File pages it could drop do not count as used.
std::optional<uint64_t> headroom_of(const fs::path& group) {
  auto limit = number_in(group / "memory.max"), used = number_in(group / "memory.current");
  std::string droppable = "inactive_file ";
  if (!limit) {
    limit = number_in(group / "memory.limit_in_bytes");
    used = number_in(group / "memory.usage_in_bytes");
    droppable = "total_inactive_file ";
  }
  if (!limit || !used) return std::nullopt;
  const uint64_t cached = number_in(group / "memory.stat", droppable).value_or(0);
  const uint64_t held = *used - std::min(cached, *used);
  return *limit - std::min(held, *limit);
}

}  // namespace

size_t cpu_quota(const SystemFiles& files) {
  double smallest = 0;
  for_each_group(files, "cpu", [&](const fs::path& group) {
    const double limit = cpus_of(group);
    if (limit > 0 && (smallest == 0 || limit < smallest)) smallest = limit;
  });
  return static_cast<size_t>(std::ceil(smallest - 1e-9));
}

namespace {

/// What this process's own limit leaves; `taken`: how /proc/self/status calls what counts to it.
std::optional<uint64_t> left_of(__rlimit_resource resource, const std::string& taken) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const auto kibibytes = number_in("/proc/self/status", taken);
  if (!kibibytes) return std::nullopt;
  return limit.rlim_cur - std::min<uint64_t>(*kibibytes * 1024, limit.rlim_cur);
}

}  // namespace

uint64_t available_memory_bytes(uint64_t sharers, const SystemFiles& files) {
  constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
  const auto kibibytes = number_in(files.memory, "MemAvailable:");
  uint64_t least = kibibytes ? *kibibytes * 1024 : kUnknown;
  for_each_group(files, "memory", [&](const fs::path& group) {
    if (const auto headroom = headroom_of(group)) least = std::min(least, *headroom);
  });
  if (least != kUnknown) least /= sharers;
  least = std::min(least, left_of(RLIMIT_AS, "VmSize:").value_or(kUnknown));
  least = std::min(least, left_of(RLIMIT_DATA, "VmData:").value_or(kUnknown));
  return least == kUnknown ? 0 : least;
}

}  // namespace danlu
