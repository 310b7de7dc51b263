#include "core/config.h"
#include "npu_sim.h"

namespace npu_sim {
#ifdef NPU_SIM_OLD
const bool kOldVariant = true;
#else
const bool kOldVariant = false;
#endif
}  // namespace npu_sim

extern "C" const char* danlu_npu_simulator_version() {
  return npu_sim::kOldVariant ? "1 old" : "1 current";
}
