#include "base/cpu_quota.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

namespace danlu {
namespace {

namespace fs = std::filesystem;

/// CPUs of one group's limit; 0: none.
double limit_of(const fs::path& group) {
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

void keep_smallest(double& smallest, double limit) {
  if (limit > 0 && (smallest == 0 || limit < smallest)) smallest = limit;
}

}  // namespace

size_t cpu_quota(const fs::path& root, const fs::path& membership) {
  double smallest = 0;
  // In a container the mount shows the process's own group as the root.
  for (const fs::path& own : {root, root / "cpu", root / "cpu,cpuacct"})
    keep_smallest(smallest, limit_of(own));

  // Lines "id:controllers:/path"; version 2 has id 0 and no controllers.
  std::ifstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && (controllers + ",").find("cpu,") == std::string::npos) continue;
    const fs::path base = controllers.empty() ? root : root / controllers;
    fs::path group;
    // Every ancestor's limit holds too.
    for (const fs::path& part : fs::path(line.substr(second + 1)).relative_path()) {
      group /= part;
      keep_smallest(smallest, limit_of(base / group));
    }
  }
  return static_cast<size_t>(std::ceil(smallest - 1e-9));
}

}  // namespace danlu
