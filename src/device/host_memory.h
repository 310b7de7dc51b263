// device/host_memory.h: memory of the host that a device reads and writes while the host goes on.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace danlu::device {

/// An empty contiguous tensor of the host, from which and into which the device copies while the
/// host goes on, if it is asked to by copy_(…, non_blocking) and has such memory. It may be dropped
/// while it is being read, but not while it is being written.
at::Tensor host_memory(at::IntArrayRef sizes, at::ScalarType type, const c10::Device& device);

/// How a kind of device has the host's memory that its copies read and write while the host goes
/// on: an empty tensor in such memory, which stays until the copies from it that were asked for are
/// over. Devices without one copy as aten does: the host's has nothing to copy, and an NPU's
/// plug-in stages what it copies (npu/staging.h).
using PinnedMemory = at::Tensor (*)(at::IntArrayRef sizes, at::ScalarType type);
void set_pinned_memory(c10::DeviceType type, PinnedMemory memory);
/// None where the device has no such memory.
PinnedMemory pinned_memory_of(c10::DeviceType type);

}  // namespace danlu::device
