// tests/support/cpu_table.h: another table of kernels for the CPU, for a while.
#pragma once
#include "ops/backend.h"

namespace danlu::test {

/// The CPU's own is back when it is gone. No pass under way at either moment.
struct CpuTable {
  explicit CpuTable(const ops::Backend& table) { ops::set_backend(c10::DeviceType::CPU, table); }
  ~CpuTable() { ops::set_backend(c10::DeviceType::CPU, ops::cpu::backend()); }
  CpuTable(const CpuTable&) = delete;
  CpuTable& operator=(const CpuTable&) = delete;
};

}  // namespace danlu::test
