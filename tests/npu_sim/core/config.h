// What the environment says of the simulated machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace npu_sim {

enum class Family { k910A, k310P, k910B };

/// A row of the vendor's chip table.
struct Chip {
  const char* name;
  Family family;
  int cube_cores;
  int vector_cores;
  int64_t l2_bytes;
  uint64_t memory_bytes;
  int max_streams;
  bool has_bf16() const { return family == Family::k910B; }
  /// Whether results may be Inf and NaN; otherwise they saturate.
  bool has_infinity() const { return family == Family::k910B; }
};

enum class Schedule { kRandom, kLazy, kEager };

struct Config {
  Chip chip;
  uint64_t memory_bytes;      // NPU_SIM_MEMORY
  uint64_t seed;              // NPU_SIM_SEED
  Schedule schedule;          // NPU_SIM_SCHEDULE
  int delay_us;               // NPU_SIM_DELAY_US
  bool strict;                // NPU_SIM_STRICT
  std::vector<int> cards;     // NPU_SIM_DEVICES, seen through ASCEND_RT_VISIBLE_DEVICES
  std::string counters_file;  // NPU_SIM_COUNTERS
};

/// Read at the first call. Exits with 2 where a variable makes no sense.
Config& config();

/// An environment variable as a number; `otherwise` if it is not set.
int64_t number_from_environment(const char* name, int64_t otherwise);

/// Whether this is the variant without newer functions.
extern const bool kOldVariant;

}  // namespace npu_sim
