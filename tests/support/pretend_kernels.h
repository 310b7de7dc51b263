// tests/support/pretend_kernels.h: the pretend device as an accelerator is to be: all it computes
// is in its table.
#pragma once

namespace danlu::test {

/// While one lives, the table of pretend devices (ops/backend.h) is the CPU's, on the devices' own
/// memory, and an operator of aten that computes there throws, naming itself: aten has no more than
/// memory, views and copies, as pretend_device.cpp lists them. One at a time; no pass under way.
class PretendKernels {
 public:
  PretendKernels();
  ~PretendKernels();
  PretendKernels(const PretendKernels&) = delete;
  PretendKernels& operator=(const PretendKernels&) = delete;
};

}  // namespace danlu::test
