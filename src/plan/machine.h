// plan/machine.h: what the devices and links of a cluster can do, read from a machine file.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "settings/config.h"

namespace danlu::plan {

/// What joins two devices, one direction.
struct Link {
  double bytes_per_s = 0, latency_s = 0;
};

/// All of a device unless said; GB are 1e9 bytes in files.
struct Machine {
  std::string name;
  int64_t devices_per_node = 1;
  double memory_bytes = 0;
  double host_bytes = 0;                                ///< of a node
  double bf16_flops = 0, f16_flops = 0, f32_flops = 0;  ///< peaks, a second
  double reachable = 1;  ///< share of the peak that large matrix products reach, (0, 1]
  double allocator = 0;  ///< of what is asked for, lost to rounding and gaps
  double memory_bytes_per_s = 0;
  Link node, network;           ///< between devices of a node, and of different ones
  double disk_bytes_per_s = 0;  ///< of a node

  double peak(settings::Precision precision) const;
  /// That a group of neighbours, `span` ranks from end to end, goes through.
  const Link& link(int64_t span) const { return span <= devices_per_node ? node : network; }
};

/// Those that come with Danlu.
std::vector<std::string> machine_names();
/// A name of the above, or a YAML file with the keys of recipes/machines.
/// Errors: UsageError naming file and line of an unknown or missing key or a value that is no
/// number above 0; IoError.
Machine load_machine(const std::string& name_or_file);
/// The same from a text. `origin`: for messages.
Machine parse_machine(const std::string& text, const std::string& origin);

}  // namespace danlu::plan
