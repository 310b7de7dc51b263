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

/// The CPU's with what it leaves to autograd and other devices do: sums of gradients, in the order
/// of a tensor's readers (autograd adds those of an adapter in another), and DoRA's backward.
inline ops::Backend cpu_as_a_device() {
  ops::Backend table = ops::cpu::backend();
  table.add_into = ops::composite_backend().add_into;
  table.scale_columns = ops::composite_backend().scale_columns;
  return table;
}

}  // namespace danlu::test
