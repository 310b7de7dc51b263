// tests/support/pretend_device.h: an accelerator that is host memory: what it holds is counted, and
// nobody else reaches it.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace danlu::test {

/// As many as a machine of several cards: ranks that are threads take one each, as processes would.
constexpr int kPretendDevices = 4;

/// A PrivateUse1 device, registered in every program that links pretend_device.cpp. Addresses of
/// its tensors are no addresses of this process: who reads or writes one past the dispatcher ends
/// by SIGSEGV. Fresh memory is NaN. aten computes on it by copies on the CPU; an operator that
/// would lose a view that way throws. The current device is a thread's own, at first 0.
c10::Device pretend_device(int index = 0);

/// Bytes of tensors on a device: now, and the most since reset_pretend_peak.
int64_t pretend_bytes(int index = 0);
int64_t pretend_peak(int index = 0);
void reset_pretend_peak(int index = 0);

/// How often numbers or tensors have come to the host, from any of them: a card would be waited
/// for.
int64_t pretend_waits();

/// A tensor of a device as the CPU's own, in the same memory.
at::Tensor pretend_memory(const at::Tensor& tensor);
/// Whether aten computes there, as it does at first; else what would throws, naming the operator.
void set_pretend_aten(bool computes);

}  // namespace danlu::test
