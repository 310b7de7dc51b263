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

/// How a group of ranks that stand `stride` apart is joined.
struct Path {
  int64_t members = 1;
  Link link;                 ///< what a rank can send to the others of the group
  double network_share = 0;  ///< of what a rank sends, how much leaves its node

  /// A collective in which each rank sends `bytes` (0: none; a group of one sends nothing).
  double seconds(double bytes) const;
};

/// All of a device unless said; GB are 1e9 bytes in files.
struct Machine {
  std::string name;
  int64_t devices_per_node = 1;
  double memory_bytes = 0;
  double host_bytes = 0;  ///< of a node
  bool is_host = false;   ///< devices are the host's processors: nothing can go to its memory
  double bf16_flops = 0, f16_flops = 0, f32_flops = 0;  ///< peaks, a second
  double reachable = 1;  ///< share of the peak that large matrix products reach, (0, 1]
  /// Share of the peak that a fused attention kernel reaches, (0, 1]; 0: that of products.
  double attention = 0;
  /// Where a product is cut: units that each make one tile of the result at a time.
  double units = 1, tile_rows = 1, tile_columns = 1;
  double kernel_s = 0;   ///< the least that one operation takes, issuing it included
  double allocator = 0;  ///< of what is asked for, lost to rounding and gaps
  double memory_bytes_per_s = 0;
  double reachable_memory = 1;  ///< share of it that passes over large tensors reach, (0, 1]
  Link node, network;           ///< between devices of a node, and of different ones
  /// A device's node bandwidth is that of so many links to other devices (a full mesh); 1: any two
  /// devices have all of it (a switch).
  double node_links = 1;
  double reachable_link = 1;         ///< share of a link that collectives reach, (0, 1]
  double host_link_bytes_per_s = 0;  ///< a device and its host, one direction
  double host_bytes_per_s = 0;       ///< memory of a node's host
  double disk_bytes_per_s = 0;       ///< of a node

  double peak(settings::Precision precision) const;
  double memory_speed() const { return memory_bytes_per_s * reachable_memory; }
  /// A group of `members` ranks, `stride` apart, ranks filling node after node. A ring goes through
  /// all of its members in a node before it leaves, and there is one for the network port of each.
  Path path(int64_t members, int64_t stride) const;
  /// Between one rank and another alone.
  Path between(int64_t rank, int64_t other) const;
};

/// The machines that come with Danlu.
std::vector<std::string> machine_names();
/// A name of the above, or a YAML file with the keys of recipes/machines.
/// Errors: UsageError naming file and line of an unknown or missing key or a value that is no
/// number above 0; IoError.
Machine load_machine(const std::string& name_or_file);
/// The same from a text. `origin`: for messages.
Machine parse_machine(const std::string& text, const std::string& origin);

}  // namespace danlu::plan
