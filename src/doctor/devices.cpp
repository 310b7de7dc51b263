#include "doctor/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/processor_name.h"
#include "doctor/child.h"

namespace danlu::doctor {
namespace {

/// parse(what the program prints).
template <typename Answer, typename Parse>
Asked<Answer> ask_tool(const SystemRoots& roots, const std::string& name,
                       const std::vector<std::string>& arguments, const Parse& parse) {
  const auto program = find_program(roots, name);
  if (!program) return {};
  const ChildResult result = run_program(*program, arguments, roots.program_timeout_s);
  if (!result.succeeded())
    return {.failure = tr("{}: {}", name, describe_failure(result, roots.program_timeout_s))};
  try {
    return {.answer = parse(result.out)};
  } catch (const DataError& error) {
    return {.failure = error.what()};
  }
}

Json usage_json(const std::optional<Usage>& usage) {
  if (!usage) return nullptr;
  return {{"used", usage->used}, {"total", usage->total}};
}

template <typename Value>
Json value_json(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json links_json(const Asked<Topology>& links) {
  if (!links.answer) return nullptr;
  return {{"devices", links.answer->devices},
          {"links", links.answer->links},
          {"processors", links.answer->processors}};
}

Json npu_json(const NpuChip& chip) {
  return {{"npu", chip.npu},
          {"chip", chip.chip},
          {"physical", value_json(chip.physical)},
          {"name", chip.name},
          {"health", chip.health},
          {"bus_id", chip.bus_id},
          {"power_w", value_json(chip.power_w)},
          {"temperature_c", value_json(chip.temperature_c)},
          {"aicore_percent", value_json(chip.cores_percent)},
          {"memory_mb", usage_json(chip.memory_mb)},
          {"hbm_mb", usage_json(chip.hbm_mb)}};
}

Json gpu_json(const GpuCard& card) {
  return {{"index", card.index},
          {"name", card.name},
          {"bus_id", card.bus_id},
          {"driver", card.driver},
          {"compute_capability", card.compute_capability},
          {"memory_mib", usage_json(card.memory_mb)},
          {"temperature_c", value_json(card.temperature_c)},
          {"busy_percent", value_json(card.busy_percent)}};
}

std::string describe_links(const Asked<Topology>& links) {
  if (links.answer) return "\n" + describe(*links.answer);
  return links.failure.empty() ? "" : "\n" + links.failure + "\n";
}

std::string describe_processors(const Devices& devices) {
  std::string out = tr("CPU: {}; this process may use {} processors ({})\n",
                       devices.processor.empty() ? std::string("?") : devices.processor,
                       devices.allowed.size(), processor_list(devices.allowed));
  for (const NumaNode& node : devices.nodes) {
    out += tr("NUMA node {}: processors {}, {}\n", node.number, processor_list(node.processors),
              node.memory_bytes ? binary_size(node.memory_bytes) : std::string("?"));
  }
  return out;
}

}  // namespace

Asked<NpuInfo> ask_npus(const SystemRoots& roots) {
  return ask_tool<NpuInfo>(roots, "npu-smi", {"info"},
                           [](const std::string& out) { return parse_npu_info(out); });
}

Asked<Topology> ask_npu_topology(const SystemRoots& roots) {
  return ask_tool<Topology>(roots, "npu-smi", {"info", "-t", "topo"},
                            [](const std::string& out) { return parse_topology(out); });
}

Asked<std::vector<GpuCard>> ask_gpus(const SystemRoots& roots) {
  return ask_tool<std::vector<GpuCard>>(
      roots, "nvidia-smi", gpu_query(),
      [](const std::string& out) { return parse_gpu_cards(out); });
}

Asked<Topology> ask_gpu_topology(const SystemRoots& roots) {
  return ask_tool<Topology>(roots, "nvidia-smi", {"topo", "-m"},
                            [](const std::string& out) { return parse_topology(out); });
}

NearProcessors processors_near_npus(const SystemRoots& roots) {
  const Asked<Topology> links = ask_npu_topology(roots);
  if (!links.answer) return {};
  std::map<int64_t, std::vector<int>> of_card;
  for (size_t i = 0; i < links.answer->devices.size(); ++i) {
    const std::string& name = links.answer->devices[i];
    if (!name.starts_with("NPU") && !name.starts_with("Phy-ID")) continue;
    const auto number = number_of(name.substr(name.find_last_not_of("0123456789") + 1));
    if (number) {
      of_card[*number] = processors_of(links.answer->processors[i]).value_or(std::vector<int>());
    }
  }
  NearProcessors near;
  const std::string seen = roots.variable("ASCEND_RT_VISIBLE_DEVICES");
  if (seen.empty()) {
    for (const auto& [card, processors] : of_card) near.push_back(processors);
    return near;
  }
  for (size_t begin = 0; begin <= seen.size();) {
    const size_t end = std::min(seen.find(',', begin), seen.size());
    const auto card = number_of(seen.substr(begin, end - begin));
    begin = end + 1;
    if (!card || !of_card.count(*card)) break;
    near.push_back(of_card.at(*card));
  }
  return near;
}

std::vector<NumaNode> numa_nodes(const SystemRoots& roots) {
  std::vector<NumaNode> nodes;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(roots.sys / "devices/system/node", none)) {
    const std::string name = entry.path().filename();
    const auto number = name.starts_with("node") ? number_of(name.substr(4)) : std::nullopt;
    if (!number) continue;
    NumaNode node{.number = *number};
    node.processors =
        processors_of(line_in(entry.path() / "cpulist").value_or("")).value_or(std::vector<int>());
    // "Node 0 MemTotal:       24692484 kB"
    const auto words = words_of(line_in(entry.path() / "meminfo").value_or(""));
    if (words.size() > 3 && words[2] == "MemTotal:")
      node.memory_bytes = static_cast<uint64_t>(number_of(words[3]).value_or(0)) * 1024;
    nodes.push_back(std::move(node));
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.number < b.number; });
  return nodes;
}

bool Devices::has_failure() const {
  return !npus.failure.empty() || !own_npus.why_not.empty() || !gpus.failure.empty() ||
         !npu_links.failure.empty();
}

Devices read_devices(const SystemRoots& roots) {
  Devices devices;
  devices.processor = processor_name(text_in(roots.proc / "cpuinfo").value_or(""));
  devices.allowed = allowed_processors(roots);
  devices.nodes = numa_nodes(roots);
  devices.npus = ask_npus(roots);
  if (devices.npus.answer) devices.npu_links = ask_npu_topology(roots);
  devices.own_npus = ask_npu_engine(roots);
  devices.gpus = ask_gpus(roots);
  if (devices.gpus.answer) devices.gpu_links = ask_gpu_topology(roots);
  return devices;
}

std::string describe(const Devices& devices) {
  std::string out;
  if (devices.npus.answer) {
    out += tr("Ascend NPUs (npu-smi {}):\n", devices.npus.answer->version) +
           describe(*devices.npus.answer) + describe_links(devices.npu_links) + "\n";
  }
  if (devices.own_npus.was_asked) {
    out += devices.own_npus.simulator.empty() ? tr("NPUs that --device npu sees:\n")
                                              : devices.own_npus.simulator + ":\n";
    for (const std::string& card : devices.own_npus.cards) out += "  " + card + "\n";
    out += "\n";
  }
  if (devices.gpus.answer) {
    out +=
        tr("NVIDIA GPUs:\n") + describe(*devices.gpus.answer) + describe_links(devices.gpu_links) +
        tr("They are used where libtorch is built for CUDA: danlu doctor --only libtorch,cuda\n") +
        "\n";
  }
  for (const std::string& failure :
       {devices.npus.failure, devices.own_npus.why_not, devices.gpus.failure}) {
    if (!failure.empty()) out += tr("FAILED: {}\n", failure) + "\n";
  }
  if (!devices.npus.is_there() && !devices.own_npus.was_asked && !devices.gpus.is_there())
    out += tr("No NPU and no GPU: neither npu-smi nor nvidia-smi is here. Runs use the CPU.\n");
  return out + describe_processors(devices);
}

Json to_json(const Devices& devices) {
  Json nodes = Json::array(), npus = Json::array(), processes = Json::array(), gpus = Json::array();
  for (const NumaNode& node : devices.nodes) {
    nodes.push_back({{"node", node.number},
                     {"processors", processor_list(node.processors)},
                     {"memory_bytes", node.memory_bytes}});
  }
  if (devices.npus.answer) {
    for (const NpuChip& chip : devices.npus.answer->chips) npus.push_back(npu_json(chip));
    for (const NpuProcess& process : devices.npus.answer->processes) {
      processes.push_back({{"npu", process.npu},
                           {"chip", process.chip},
                           {"pid", process.pid},
                           {"name", process.name},
                           {"memory_mb", value_json(process.memory_mb)}});
    }
  }
  if (devices.gpus.answer) {
    for (const GpuCard& card : *devices.gpus.answer) gpus.push_back(gpu_json(card));
  }
  return {{"cpu",
           {{"model", devices.processor},
            {"allowed", processor_list(devices.allowed)},
            {"numa_nodes", nodes}}},
          {"npus", npus},
          {"npu_devices", devices.own_npus.cards},
          {"npu_simulator", devices.own_npus.simulator},
          {"npu_processes", processes},
          {"npu_links", links_json(devices.npu_links)},
          {"gpus", gpus},
          {"gpu_links", links_json(devices.gpu_links)},
          {"failures",
           Json::array({devices.npus.failure, devices.npu_links.failure, devices.own_npus.why_not,
                        devices.gpus.failure, devices.gpu_links.failure})}};
}

}  // namespace danlu::doctor
