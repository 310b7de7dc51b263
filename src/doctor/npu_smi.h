// doctor/npu_smi.h: what `npu-smi` prints, as data. Its columns differ from version to version, so
// rows are read by '|' and by the names in the head, never by places.
// Source: the tool's output, 23.0 to 25.0.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace danlu::doctor {

struct Usage {
  int64_t used = 0, total = 0;
};

/// A chip as `npu-smi info` shows it. What a card does not say ("-", "NA", a column that is not
/// there) is empty.
struct NpuChip {
  int64_t npu = 0;                       ///< the card
  int64_t chip = 0;                      ///< of the card
  std::optional<int64_t> physical = {};  ///< "Phy-ID" or "Device"
  std::string name = {}, health = {};    ///< "910B3", "OK"
  std::optional<double> power_w = {};
  std::optional<int64_t> temperature_c = {};
  std::optional<Usage> huge_pages = {};
  std::string bus_id = {};                    ///< "0000:C1:00.0"
  std::optional<int64_t> cores_percent = {};  ///< AICore
  std::optional<Usage> memory_mb = {}, hbm_mb = {};
};

struct NpuProcess {
  int64_t npu = 0, chip = 0, pid = 0;
  std::string name = {};
  std::optional<int64_t> memory_mb = {};
};

struct NpuInfo {
  std::string version;
  std::vector<NpuChip> chips;
  std::vector<NpuProcess> processes;
};

/// Errors: DataError naming the line that cannot be read, or saying that there is no table.
NpuInfo parse_npu_info(std::string_view text);

/// How devices are joined: of `npu-smi info -t topo` and `nvidia-smi topo -m`.
struct Topology {
  std::vector<std::string> devices;             ///< "NPU0", "Phy-ID3", "GPU0", "NIC0"
  std::vector<std::vector<std::string>> links;  ///< [device, device]: "X", "HCCS", "SYS", …
  std::vector<std::string> processors;          ///< near each device: "144-167"; empty: not said
};

/// Errors: as parse_npu_info.
Topology parse_topology(std::string_view text);

/// The topology as a table for the terminal, with what the kinds of links mean.
std::string describe(const Topology& topology);
/// A text with all chips, then with the processes that hold their memory.
std::string describe(const NpuInfo& info);

}  // namespace danlu::doctor
