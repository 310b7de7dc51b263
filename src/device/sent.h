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

}  // namespace danlu::device
