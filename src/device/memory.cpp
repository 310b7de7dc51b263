#include "device/memory.h"

#include <array>

#include "base/control_group.h"
#include "device/counted_memory.h"
#include "device/cuda.h"

namespace danlu::device {
namespace {

MemoryCounter& counter_of(c10::DeviceType type) {
  static std::array<MemoryCounter, c10::COMPILE_TIME_MAX_DEVICE_TYPES> counters = [] {
    std::array<MemoryCounter, c10::COMPILE_TIME_MAX_DEVICE_TYPES> first;
    first[static_cast<size_t>(c10::DeviceType::CPU)] = {
        [](const c10::Device&) { return host_memory(); },
        [](const c10::Device&) { return peak_host_memory(); },
        [](const c10::Device&) { reset_peak_host_memory(); }, nullptr, nullptr};
    first[static_cast<size_t>(c10::DeviceType::CUDA)] = cuda_memory_counter();
    return first;
  }();
  return counters.at(static_cast<size_t>(type));
}

}  // namespace

void set_memory_counter(c10::DeviceType type, const MemoryCounter& counter) {
  counter_of(type) = counter;
}

bool count_memory(const c10::Device& device) {
  if (device.is_cpu()) count_host_memory();
  return counter_of(device.type()).now != nullptr;
}

int64_t memory(const c10::Device& device) {
  const MemoryCounter& counter = counter_of(device.type());
  return counter.now ? counter.now(device) : 0;
}

int64_t peak_memory(const c10::Device& device) {
  const MemoryCounter& counter = counter_of(device.type());
  return counter.peak ? counter.peak(device) : 0;
}

void reset_peak_memory(const c10::Device& device) {
  const MemoryCounter& counter = counter_of(device.type());
  if (counter.reset_peak) counter.reset_peak(device);
}

std::optional<AllocatorFigures> allocator_figures(const c10::Device& device) {
  const MemoryCounter& counter = counter_of(device.type());
  if (!counter.allocator) return std::nullopt;
  return counter.allocator(device);
}

uint64_t available_memory(const c10::Device& device, uint64_t sharers) {
  if (device.is_cpu()) return available_memory_bytes(sharers);
  const MemoryCounter& counter = counter_of(device.type());
  return counter.available ? counter.available(device) : 0;
}

}  // namespace danlu::device
