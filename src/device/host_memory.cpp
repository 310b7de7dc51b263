#include "device/host_memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <array>

namespace danlu::device {
namespace {

PinnedMemory& memory_of(c10::DeviceType type) {
  static std::array<PinnedMemory, c10::COMPILE_TIME_MAX_DEVICE_TYPES> memories = [] {
    std::array<PinnedMemory, c10::COMPILE_TIME_MAX_DEVICE_TYPES> first{};
    // libtorch keeps pinned memory, and knows of each piece which copies are under way.
    first[static_cast<size_t>(c10::DeviceType::CUDA)] = [](at::IntArrayRef sizes,
                                                           at::ScalarType type) {
      return at::empty(sizes, at::TensorOptions(type).pinned_memory(true));
    };
    return first;
  }();
  return memories.at(static_cast<size_t>(type));
}

}  // namespace

void set_pinned_memory(c10::DeviceType type, PinnedMemory memory) { memory_of(type) = memory; }

PinnedMemory pinned_memory_of(c10::DeviceType type) { return memory_of(type); }

at::Tensor host_memory(at::IntArrayRef sizes, at::ScalarType type, const c10::Device& device) {
  const PinnedMemory pinned_memory = pinned_memory_of(device.type());
  return pinned_memory ? pinned_memory(sizes, type) : at::empty(sizes, at::TensorOptions(type));
}

}  // namespace danlu::device
