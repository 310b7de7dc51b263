// Processors and cards that are near each other.
#include <fmt/format.h>

#include <algorithm>

#include "base/message.h"
#include "doctor/check.h"
#include "doctor/devices.h"

namespace danlu::doctor {
namespace {

bool meet(const std::vector<int>& left, const std::vector<int>& right) {
  return std::any_of(left.begin(), left.end(), [&](int processor) {
    return std::find(right.begin(), right.end(), processor) != right.end();
  });
}

/// The cards that none of this process's processors is near to.
std::vector<std::string> far_cards(const Topology& topology, const std::vector<int>& allowed) {
  std::vector<std::string> far;
  for (size_t i = 0; i < topology.devices.size(); ++i) {
    const auto near = processors_of(topology.processors[i]);
    if (near && !near->empty() && !meet(*near, allowed))
      far.push_back(fmt::format("{} ({})", topology.devices[i], topology.processors[i]));
  }
  return far;
}

}  // namespace

Finding check_numa(const SystemRoots& roots) {
  const auto nodes = numa_nodes(roots);
  const std::vector<int> allowed = allowed_processors(roots);
  if (nodes.empty()) return Finding::not_here(tr("the system names no NUMA nodes"));
  Finding finding;
  size_t used = 0;
  for (const NumaNode& node : nodes) used += meet(node.processors, allowed);
  finding.read = tr("{} NUMA nodes, this process may run on {} of them", nodes.size(), used);
  if (used > 1) {
    finding.add(Verdict::kOk,
                tr("CPU_AFFINITY_CONF=1 keeps each of several ranks to a part of the processors"));
  }
  for (const auto& links : {ask_npu_topology(roots), ask_gpu_topology(roots)}) {
    if (!links.answer || allowed.empty()) continue;
    for (const std::string& card : far_cards(*links.answer, allowed)) {
      finding.add(
          Verdict::kWarning,
          tr("{} is near none of this process's processors {}", card, processor_list(allowed)),
          tr("give the container or job the processors near its cards"));
    }
  }
  return finding;
}

}  // namespace danlu::doctor
