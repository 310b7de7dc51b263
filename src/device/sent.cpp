#include "device/sent.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <utility>

#include "device/host_memory.h"
#include "device/stream.h"

namespace danlu::device {
namespace {

/// One for a thread and device: streams of a device are few.
const Stream& stream_of_copies(const c10::Device& device) {
  thread_local std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, Stream> streams;
  const auto key = std::pair(device.type(), device.index());
  const auto found = streams.find(key);
  return found != streams.end() ? found->second
                                : streams.emplace(key, Stream::beside(device)).first->second;
}

}  // namespace

at::Tensor sent(const at::Tensor& tensor, const c10::Device& device) {
  const PinnedMemory pinned_memory = pinned_memory_of(device.type());
  if (!tensor.is_cpu() || device.is_cpu() || !pinned_memory || tensor.numel() == 0)
    return tensor.to(device);
  const at::Tensor pinned = pinned_memory(tensor.sizes(), tensor.scalar_type());
  pinned.copy_(tensor.detach());
  if (static_cast<int64_t>(tensor.nbytes()) < kBytesBesidePasses)
    return pinned.to(device, /*non_blocking=*/true);
  const Stream passes = Stream::current(device);
  const Stream& copies = stream_of_copies(device);
  at::Tensor there;
  {
    const Stream::InForce in_force(copies);
    there = pinned.to(device, /*non_blocking=*/true);
  }
  passes.wait_for(copies.record());
  passes.hold(there);
  return there;
}

}  // namespace danlu::device
