#include "plan/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/nearest_name.h"
#include "base/option_file.h"

namespace danlu::plan {

// recipes/machines, built in.
extern const char* const kAtlas800tA2;
extern const char* const kA100;
extern const char* const kH100;
extern const char* const kCpuNode;

namespace {

const std::map<std::string, const char*>& shipped() {
  static const std::map<std::string, const char*> files = {{"atlas-800t-a2", kAtlas800tA2},
                                                           {"a100-80g", kA100},
                                                           {"h100-80g", kH100},
                                                           {"cpu-node", kCpuNode}};
  return files;
}

struct Field {
  const char* key;
  double unit;
  double* value;
};

std::vector<Field> fields_of(Machine& machine, double& devices) {
  return {{"devices_per_node", 1, &devices},
          {"memory_gb", 1e9, &machine.memory_bytes},
          {"host_memory_gb", 1e9, &machine.host_bytes},
          {"bf16_tflops", 1e12, &machine.bf16_flops},
          {"f16_tflops", 1e12, &machine.f16_flops},
          {"f32_tflops", 1e12, &machine.f32_flops},
          {"reachable_share", 1, &machine.reachable},
          {"allocator_share", 1, &machine.allocator},
          {"memory_gb_per_s", 1e9, &machine.memory_bytes_per_s},
          {"node_link_gb_per_s", 1e9, &machine.node.bytes_per_s},
          {"node_link_latency_us", 1e-6, &machine.node.latency_s},
          {"network_gb_per_s", 1e9, &machine.network.bytes_per_s},
          {"network_latency_us", 1e-6, &machine.network.latency_s},
          {"disk_gb_per_s", 1e9, &machine.disk_bytes_per_s}};
}

double positive(const OptionFileEntry& entry) {
  double value = 0;
  const char* end = entry.text.data() + entry.text.size();
  const auto [stop, error] = std::from_chars(entry.text.data(), end, value);
  if (error == std::errc() && stop == end && std::isfinite(value) && value > 0) return value;
  throw UsageError(tr("[machine] {}: {} must be a number above 0, got '{}'", entry.origin,
                      entry.key, entry.text));
}

}  // namespace

double Machine::peak(settings::Precision precision) const {
  if (precision == settings::Precision::kBF16) return bf16_flops;
  return precision == settings::Precision::kF16 ? f16_flops : f32_flops;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto& [name, text] : shipped()) names.push_back(name);
  return names;
}

Machine parse_machine(const std::string& text, const std::string& origin) {
  Machine machine;
  machine.reachable = 0;
  double devices = 0;
  const std::vector<Field> fields = fields_of(machine, devices);
  std::vector<std::string> keys, missing;
  for (const Field& field : fields) keys.emplace_back(field.key);
  for (const OptionFileEntry& entry :
       read_option_text(text, origin, [](const std::string&) { return false; })) {
    const auto found = std::find(keys.begin(), keys.end(), entry.key);
    if (found == keys.end()) {
      const auto near = nearest_name(entry.key, keys);
      throw UsageError(tr("[machine] {}: unknown key {}", entry.origin, entry.key),
                       near ? tr("did you mean {}?", *near)
                            : tr("there is: {}", fmt::format("{}", fmt::join(keys, ", "))));
    }
    const Field& field = fields[static_cast<size_t>(found - keys.begin())];
    *field.value = positive(entry) * field.unit;
  }
  for (const Field& field : fields) {
    if (*field.value == 0) missing.emplace_back(field.key);
  }
  if (!missing.empty())
    throw UsageError(
        tr("[machine] {}: {} is missing", origin, fmt::format("{}", fmt::join(missing, ", "))));
  if (devices != std::floor(devices) || devices > 1e6)
    throw UsageError(tr("[machine] {}: devices_per_node must be a whole number", origin));
  if (machine.reachable > 1)
    throw UsageError(tr("[machine] {}: reachable_share must be at most 1", origin));
  machine.devices_per_node = static_cast<int64_t>(devices);
  machine.name = origin;
  return machine;
}

Machine load_machine(const std::string& name_or_file) {
  if (const auto found = shipped().find(name_or_file); found != shipped().end())
    return parse_machine(found->second, name_or_file);
  if (!std::filesystem::exists(name_or_file)) {
    const auto near = nearest_name(name_or_file, machine_names());
    throw UsageError(tr("[machine] {}: neither a machine of Danlu's nor a file", name_or_file),
                     near
                         ? tr("did you mean {}?", *near)
                         : tr("there is: {}", fmt::format("{}", fmt::join(machine_names(), ", "))));
  }
  return parse_machine(read_file(name_or_file), name_or_file);
}

}  // namespace danlu::plan
