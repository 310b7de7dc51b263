#include "npu/support.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "device/npu.h"
#include "device/select.h"
#include "support/tiny_model.h"

namespace danlu::npu::test {

bool is_on_card() { return std::getenv("DANLU_NPU_ON_CARD") != nullptr; }

namespace {

/// Before anything else runs: libtorch starts its threads for devices at the first backward, for
/// those that it knows then.
class OpenedNpu : public testing::Environment {
  void SetUp() override {
    if (!is_on_card())
      ::setenv("DANLU_NPU_LIBRARY", DANLU_BUILD_DIR "/npu_sim/current", /*overwrite=*/0);
    // Kept plans are asked for, so that every test of the table takes them.
    ::setenv("DANLU_NPU_KEEP_PLANS", "1", /*overwrite=*/0);
    // One with faults in it (npu_plants).
    if (const char* const other = std::getenv("DANLU_TEST_NPU_PLUGIN"))
      device::use_npu_plugin(other);
    npu();
  }
};
testing::Environment* const kOpenedNpu = testing::AddGlobalTestEnvironment(new OpenedNpu);

}  // namespace

c10::Device npu() {
  static const c10::Device device = device::select("npu:0");
  return device;
}

namespace {

template <typename Function>
Function of_simulator(const char* name, const char* library = "libascendcl.so") {
  const auto file = std::filesystem::path(std::getenv("DANLU_NPU_LIBRARY")) / library;
  void* const opened = ::dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  void* const found = opened ? ::dlsym(opened, name) : nullptr;
  if (!found) throw InternalError("the simulator has no " + std::string(name));
  return reinterpret_cast<Function>(found);
}

}  // namespace

int64_t counter(const std::string& name) {
  using Counter = int64_t (*)(const char*);
  static const auto ask = of_simulator<Counter>("danlu_sim_counter");
  return ask(name.c_str());
}

Faults::Faults(const std::string& words) {
  if (of_simulator<int (*)(const char*)>("NpuSimInject")(words.c_str()) != 0)
    throw InternalError("no faults: " + words);
}
Faults::~Faults() { of_simulator<void (*)()>("NpuSimClearFaults")(); }

int64_t alive(const std::string& kind) {
  return of_simulator<int64_t (*)(const char*)>("NpuSimAlive", "libnnopbase.so")(kind.c_str());
}

at::Tensor normal(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type) {
  const at::Tensor values = at::empty(sizes, at::kFloat);
  for (int64_t i = 0; i < values.numel(); ++i)
    values.data_ptr<float>()[i] = danlu::test::tiny_normal(seed, static_cast<uint64_t>(i));
  return values.to(type);
}

double distance(const at::Tensor& got, const at::Tensor& expected) {
  const at::Tensor a = got.to(at::kCPU).to(at::kDouble), b = expected.to(at::kDouble);
  if (a.sizes() != b.sizes()) return 1e9;
  const double length = b.norm().item<double>();
  return (a - b).norm().item<double>() / (length > 0 ? length : 1);
}

}  // namespace danlu::npu::test
