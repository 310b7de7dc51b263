// device/sent.h: numbers of the host on their way to a device, for which nobody waits.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace danlu::device {

/// From so many bytes on a copy goes by a stream beside the passes', so that it runs while they do.
/// Of smaller ones the events would take longer than the copy.
constexpr int64_t kBytesBesidePasses = 256 << 10;

/// The tensor on the device, for what the calling thread's current stream of it is given from now
/// on; the tensor itself where it is there. A tensor of the host is read before this returns, and
/// the host does not wait for the device, as it does in aten's `to`: that waits for all work that
/// the stream has been given.
at::Tensor sent(const at::Tensor& tensor, const c10::Device& device);

/// How a kind of device has the host's memory that its copies read while the host goes on: gives
/// the tensor in such memory, which stays until the copies of it that were asked for are over.
/// Devices without one copy as aten does: the host's has nothing to copy, and an NPU's plug-in
/// stages what it copies (npu/staging.h).
using PinnedCopy = at::Tensor (*)(const at::Tensor& host);
void set_pinned_copy(c10::DeviceType type, PinnedCopy copy);

}  // namespace danlu::device
