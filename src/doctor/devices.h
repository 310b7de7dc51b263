// doctor/devices.h: the cards of a machine and its processors, for `danlu devices` and the checks.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/cpu_affinity.h"
#include "base/json.h"
#include "doctor/npu_engine.h"
#include "doctor/npu_smi.h"
#include "doctor/nvidia_smi.h"
#include "doctor/system.h"

namespace danlu::doctor {

/// What a tool answered; neither, if the tool is not there.
template <typename Answer>
struct Asked {
  std::optional<Answer> answer = {};
  std::string failure = {};  ///< in the terminal's language
  bool is_there() const { return answer || !failure.empty(); }
};

Asked<NpuInfo> ask_npus(const SystemRoots& roots);
Asked<Topology> ask_npu_topology(const SystemRoots& roots);
Asked<std::vector<GpuCard>> ask_gpus(const SystemRoots& roots);
Asked<Topology> ask_gpu_topology(const SystemRoots& roots);

/// The processors near each NPU that a run sees, as npu-smi says them: a rank's card is that of its
/// number on this machine. Empty where npu-smi is not there or does not answer.
NearProcessors processors_near_npus(const SystemRoots& roots);

struct NumaNode {
  int64_t number = 0;
  std::vector<int> processors = {};
  uint64_t memory_bytes = 0;  ///< 0: not said
};
std::vector<NumaNode> numa_nodes(const SystemRoots& roots);

struct Devices {
  std::string processor;  ///< model
  std::vector<int> allowed;
  std::vector<NumaNode> nodes;
  Asked<NpuInfo> npus;
  NpuEngineAnswer own_npus;  ///< what --device npu sees
  Asked<Topology> npu_links;
  Asked<std::vector<GpuCard>> gpus;
  Asked<Topology> gpu_links;
  /// A tool that is there and does not answer.
  bool has_failure() const;
};
Devices read_devices(const SystemRoots& roots);

std::string describe(const Devices& devices);
Json to_json(const Devices& devices);

}  // namespace danlu::doctor
