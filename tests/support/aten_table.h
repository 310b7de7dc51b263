// tests/support/aten_table.h: the pretend device with the table of devices that ATen computes on.
#pragma once
#include "ops/aten/table.h"
#include "support/pretend_device.h"

namespace danlu::test {

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
