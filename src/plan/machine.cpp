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
          {"attention_share", 1, &machine.attention},
          {"matrix_units", 1, &machine.units},
          {"tile_rows", 1, &machine.tile_rows},
          {"tile_columns", 1, &machine.tile_columns},
          {"kernel_us", 1e-6, &machine.kernel_s},
          {"allocator_share", 1, &machine.allocator},
          {"memory_gb_per_s", 1e9, &machine.memory_bytes_per_s},
          {"reachable_memory_share", 1, &machine.reachable_memory},
          {"node_link_gb_per_s", 1e9, &machine.node.bytes_per_s},
          {"node_link_latency_us", 1e-6, &machine.node.latency_s},
          {"node_links", 1, &machine.node_links},
          {"network_gb_per_s", 1e9, &machine.network.bytes_per_s},
          {"network_latency_us", 1e-6, &machine.network.latency_s},
          {"reachable_link_share", 1, &machine.reachable_link},
          {"host_link_gb_per_s", 1e9, &machine.host_link_bytes_per_s},
          {"host_memory_gb_per_s", 1e9, &machine.host_bytes_per_s},
          {"disk_gb_per_s", 1e9, &machine.disk_bytes_per_s}};
}

constexpr const char* kIsHost = "is_host";  // the one key that may be missing

bool yes_or_no(const OptionFileEntry& entry) {
  if (entry.text == "true" || entry.text == "false") return entry.text == "true";
  throw UsageError(
      tr("[machine] {}: {} must be true or false, got '{}'", entry.origin, entry.key, entry.text));
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

double Path::seconds(double bytes) const {
  if (members == 1 || bytes == 0) return 0;
  return bytes / link.bytes_per_s + link.latency_s * std::ceil(std::log2(members));
}

Path Machine::path(int64_t members, int64_t stride) const {
  const bool leaves = members * stride > devices_per_node;
  const int64_t near =
      leaves ? std::clamp<int64_t>(devices_per_node / stride, 1, members) : members;
  const double inside =
      node.bytes_per_s * std::min(1.0, static_cast<double>(near - 1) / node_links);
  Path path{.members = members, .link = leaves ? network : node};
  path.link.bytes_per_s = inside;
  if (leaves) {
    path.network_share = 1 / static_cast<double>(near);
    const double out = network.bytes_per_s * static_cast<double>(near);
    path.link.bytes_per_s = near > 1 ? std::min(inside, out) : out;
  }
  path.link.bytes_per_s *= reachable_link;
  return path;
}

Path Machine::between(int64_t rank, int64_t other) const {
  const bool leaves = rank / devices_per_node != other / devices_per_node;
  Path path{.members = 2, .link = leaves ? network : node, .network_share = leaves ? 1.0 : 0.0};
  path.link.bytes_per_s *= reachable_link / (leaves ? 1 : node_links);
  return path;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto& [name, text] : shipped()) names.push_back(name);
  return names;
}

Machine parse_machine(const std::string& text, const std::string& origin) {
  Machine machine;
  double devices = 0;
  const std::vector<Field> fields = fields_of(machine, devices);
  std::vector<std::string> keys, missing;
  for (const Field& field : fields) {
    keys.emplace_back(field.key);
    *field.value = 0;
  }
  for (const OptionFileEntry& entry :
       read_option_text(text, origin, [](const std::string&) { return false; })) {
    if (entry.key == kIsHost) {
      machine.is_host = yes_or_no(entry);
      continue;
    }
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
  for (const Field& field : fields) {
    if (std::string(field.key).ends_with("_share") && *field.value > 1)
      throw UsageError(tr("[machine] {}: {} must be at most 1", origin, field.key));
  }
  machine.devices_per_node = static_cast<int64_t>(devices);
  machine.name = origin;
  return machine;
}

Machine load_machine(const std::string& name_or_file) {
  if (const auto found = shipped().find(name_or_file); found != shipped().end())
    return parse_machine(found->second, name_or_file);
  if (!std::filesystem::exists(name_or_file) || std::filesystem::is_directory(name_or_file)) {
    const auto near = nearest_name(name_or_file, machine_names());
    throw UsageError(tr("[machine] {}: neither a machine of Danlu's nor a file", name_or_file),
                     near
                         ? tr("did you mean {}?", *near)
                         : tr("there is: {}", fmt::format("{}", fmt::join(machine_names(), ", "))));
  }
  return parse_machine(read_file(name_or_file), name_or_file);
}

}  // namespace danlu::plan
