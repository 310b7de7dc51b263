// tests/support/aten_table.h: the pretend device with the table of devices that ATen computes on.
#pragma once
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <exception>

#include "ops/aten/table.h"
#include "support/pretend_device.h"

namespace danlu::test {

/// False where oneDNN may not use the instructions that ATen takes for granted (DANLU_CPU below the
/// processor's class): its products of bf16 then throw.
inline bool aten_multiplies_bf16() {
  const at::Tensor x = at::ones({64, 64}, at::kBFloat16);
  try {
    return at::matmul(x, x).defined();
  } catch (const std::exception&) {
    return false;
  }
}

/// While one lives, pretend devices have src/ops/aten's entries, whose operators run on the host.
/// What of them waits for a device counts as a wait (pretend_waits). No pass under way at either
/// moment.
struct AtenTable {
  AtenTable() { ops::set_backend(pretend_device().type(), ops::aten::backend()); }
  ~AtenTable() {
    wait_for_pretend_devices();
    ops::set_backend(pretend_device().type(), {});
  }
  AtenTable(const AtenTable&) = delete;
  AtenTable& operator=(const AtenTable&) = delete;
};

}  // namespace danlu::test
