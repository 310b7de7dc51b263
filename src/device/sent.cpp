#include "device/sent.h"

#include <array>
#include <map>
#include <utility>

#include "device/stream.h"

namespace danlu::device {
namespace {

PinnedCopy& pinned_copy_of(c10::DeviceType type) {
  static std::array<PinnedCopy, c10::COMPILE_TIME_MAX_DEVICE_TYPES> copies = [] {
    std::array<PinnedCopy, c10::COMPILE_TIME_MAX_DEVICE_TYPES> first{};
    // libtorch keeps pinned memory, and knows of each piece which copies are under way.
    first[static_cast<size_t>(c10::DeviceType::CUDA)] = [](const at::Tensor& host) {
      return host.pin_memory();
    };
    return first;
  }();
  return copies.at(static_cast<size_t>(type));
}

/// One for a thread and device: streams of a device are few.
const Stream& stream_of_copies(const c10::Device& device) {
  thread_local std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, Stream> streams;
  const auto key = std::pair(device.type(), device.index());
  const auto found = streams.find(key);
  return found != streams.end() ? found->second
                                : streams.emplace(key, Stream::beside(device)).first->second;
}

}  // namespace

void set_pinned_copy(c10::DeviceType type, PinnedCopy copy) { pinned_copy_of(type) = copy; }

at::Tensor sent(const at::Tensor& tensor, const c10::Device& device) {
  const PinnedCopy pinned_copy = pinned_copy_of(device.type());
  if (!tensor.is_cpu() || device.is_cpu() || !pinned_copy || tensor.numel() == 0)
    return tensor.to(device);
  const at::Tensor pinned = pinned_copy(tensor);
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
