// tests/support/aten_table.h: the pretend device with the table of devices that ATen computes on.
#pragma once
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <cstdlib>
#include <exception>
#include <string>

#include "ops/aten/table.h"
#include "support/pretend_device.h"

namespace danlu::test {

/// False where ATen's products of bf16 on this host are none of a card's: where oneDNN may not use
/// the instructions that ATen takes for granted (DANLU_CPU below the processor's class), and they
/// throw; and where they add in bf16, as libtorch 1.13's do on Arm.
inline bool aten_multiplies_bf16() {
  constexpr int64_t kMany = 65536;  // a sum of ones in bf16 ends at 256
  const at::Tensor x = at::ones({4, kMany}, at::kBFloat16), y = at::ones({kMany, 4}, at::kBFloat16);
  try {
    for (const at::Tensor& product : {at::matmul(x, y), at::matmul(x, x.t()), at::matmul(y.t(), y)})
      if (product.min().item<float>() != kMany) return false;
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// Whether tests of tables are to be of a real GPU's own table, on the first card that is there:
/// DANLU_TEST_DEVICE=cuda, as tools/gpu_first_run.sh sets it.
inline bool are_on_gpu() {
  static const bool on_gpu = [] {
    const char* const name = std::getenv("DANLU_TEST_DEVICE");
    return name && std::string(name) == "cuda";
  }();
  return on_gpu;
}

/// While one lives, pretend devices have src/ops/aten's entries, whose operators run on the host.
/// What of them waits for a device counts as a wait (pretend_waits). No pass under way at either
/// moment. A GPU's table stays as it is.
struct AtenTable {
  AtenTable() {
    if (!are_on_gpu()) ops::set_backend(pretend_device().type(), ops::aten::backend());
  }
  ~AtenTable() {
    if (are_on_gpu()) return;
    wait_for_pretend_devices();
    ops::set_backend(pretend_device().type(), {});
  }
  AtenTable(const AtenTable&) = delete;
  AtenTable& operator=(const AtenTable&) = delete;
};

}  // namespace danlu::test
