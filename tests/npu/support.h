// tests/npu/support.h: the simulated NPU, and what it is asked about itself.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace danlu::npu::test {

/// Whether the tests are to run on CANN and a card (tools/npu_first_run.sh): DANLU_NPU_ON_CARD.
bool is_on_card();

/// npu:0; but for is_on_card() of the simulator that DANLU_NPU_LIBRARY names, which is the one of
/// this build where it names none.
c10::Device npu();

/// One of the simulator's counters (tests/npu_sim/npu_sim.h).
int64_t counter(const std::string& name);

/// Plants faults in the simulator, in the words of NPU_SIM_FAULT; they go with it.
class Faults {
 public:
  explicit Faults(const std::string& words);
  ~Faults();
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
};

/// Live objects of the simulator by kind: "events", "scalars", …
int64_t alive(const std::string& kind);

/// Standard normal numbers, the same for a seed, rounded to the type; on the host.
at::Tensor normal(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type = at::kFloat);

/// |got - expected| / |expected| as lengths of vectors, in f64.
double distance(const at::Tensor& got, const at::Tensor& expected);

}  // namespace danlu::npu::test
