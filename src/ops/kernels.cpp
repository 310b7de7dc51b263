#include "ops/kernels.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "ops/row_kernels_cpu.h"

namespace danlu::ops {
namespace {

Kernels start_value() {
  const char* text = std::getenv("DANLU_KERNELS");
  const std::string name = text && *text ? text : "fused";
  if (name != "fused" && name != "composite")
    throw UsageError(tr("[kernels] DANLU_KERNELS must be 'fused' or 'composite', got '{}'", name));
  log::debug("ops: {} kernels; CPU vectors: {}", name, cpu::vector_target());
  return name == "fused" ? Kernels::kFused : Kernels::kComposite;
}

std::atomic<Kernels>& chosen() {
  static std::atomic<Kernels> value{start_value()};
  return value;
}

}  // namespace

Kernels kernels() { return chosen().load(std::memory_order_relaxed); }
void set_kernels(Kernels kernels) { chosen().store(kernels); }

}  // namespace danlu::ops
