// doctor/nvidia_smi.h: what `nvidia-smi` prints when it is asked for a few values, as data.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/npu_smi.h"

namespace danlu::doctor {

/// What a card does not say ("[N/A]", "[Not Supported]") is empty.
struct GpuCard {
  int64_t index = 0;
  std::string name = {}, bus_id = {}, driver = {};
  std::string compute_capability = {};  ///< "9.0"
  std::optional<Usage> memory_mb = {};  ///< MiB, as the tool means them
  std::optional<int64_t> temperature_c = {}, busy_percent = {};
};

struct GpuProcess {
  int64_t pid = 0;
  std::optional<int64_t> memory_mb = {};
};

/// The arguments for nvidia-smi whose answers the functions below read.
std::vector<std::string> gpu_query();
std::vector<std::string> gpu_process_query();

/// Errors: DataError naming the line that cannot be read; none without lines.
std::vector<GpuCard> parse_gpu_cards(std::string_view text);
std::vector<GpuProcess> parse_gpu_processes(std::string_view text);

std::string describe(const std::vector<GpuCard>& cards);

}  // namespace danlu::doctor
