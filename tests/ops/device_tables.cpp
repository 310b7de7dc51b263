// DANLU_TEST_TABLE=aten|cuda: the tests of this program with another table than the CPU's, on the
// CPU: that of devices that ATen computes on, and the same with the kernels of src/ops/cuda, run on
// the host (support/emulated_cuda). DANLU_TEST_TILES=model: with the CPU's, but products of bf16 as
// on a processor with AMX, in the model of its registers. What the tests hold kernels against stays
// as it is.
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "ops/aten/table.h"
#include "ops/backend.h"
#include "ops/gemm_kernels_cpu.h"
#ifdef DANLU_EMULATES_CUDA
#include "ops/cuda/entries.h"
#endif

namespace danlu::ops {
namespace device_tables {

/// ATen of a CPU multiplies no f16, and lacks some of its row operators.
bool aten_takes(Work work, at::ScalarType type) {
  return type != at::kHalf && aten::backend().takes(work, type);
}
bool kernels_take(Work work, at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 ||
         (type == at::kHalf && work != Work::kProducts);
}

Backend table_named(const std::string& name) {
  Backend table = aten::backend();
  table.takes = &aten_takes;
  if (name == "aten") return table;
#ifdef DANLU_EMULATES_CUDA
  if (name == "cuda") {
    cuda::add_kernels(table);
    table.takes = &kernels_take;
    return table;
  }
#endif
  throw std::invalid_argument("DANLU_TEST_TABLE=" + name);
}

class OtherTable : public testing::Environment {
 public:
  void SetUp() override {
    const char* const name = std::getenv("DANLU_TEST_TABLE");
    if (name && *name) set_backend(c10::DeviceType::CPU, table_named(name));
    const char* const tiles = std::getenv("DANLU_TEST_TILES");
    if (!tiles || !*tiles) return;
    if (std::string(tiles) != "model") throw std::invalid_argument("DANLU_TEST_TILES");
    cpu::multiply_in_model(true);
  }
};

testing::Environment* const added = testing::AddGlobalTestEnvironment(new OtherTable);

}  // namespace device_tables
}  // namespace danlu::ops
