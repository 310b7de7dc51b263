// device/memory.h: how much of a device's memory the tensors of this process have.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace danlu::device {

/// What a back end's allocator has of a device, beside what tensors have.
struct AllocatorFigures {
  /// The most bytes since reset_peak, those of tensors among them. More than those had: memory in
  /// pieces, or kept for tensors to come.
  int64_t held = 0;
  /// How often, so far, it had to give the device back what no tensor had before it found room.
  /// Each waits for the device.
  int64_t retries = 0;
};

/// How a back end counts the bytes that tensors have on a device of its kind: now, and the most
/// since reset_peak.
struct MemoryCounter {
  int64_t (*now)(const c10::Device& device) = nullptr;
  int64_t (*peak)(const c10::Device& device) = nullptr;
  void (*reset_peak)(const c10::Device& device) = nullptr;
  /// Bytes that further tensors can have. What the back end keeps for tensors and none has now goes
  /// back to the device first.
  uint64_t (*available)(const c10::Device& device) = nullptr;
  /// nullptr: nothing is known of it.
  AllocatorFigures (*allocator)(const c10::Device& device) = nullptr;
};

/// Sets the counter for a type of device, before count_memory. The host has one already
/// (device/counted_memory.h).
void set_memory_counter(c10::DeviceType type, const MemoryCounter& counter);

/// Begins to count; further calls have no effect. false: the device has no counter, and the numbers
/// below are 0.
bool count_memory(const c10::Device& device);
int64_t memory(const c10::Device& device);
int64_t peak_memory(const c10::Device& device);
void reset_peak_memory(const c10::Device& device);
std::optional<AllocatorFigures> allocator_figures(const c10::Device& device);

/// Bytes that further tensors of this process can have; 0: not known. sharers: processes that take
/// memory of this host (available_memory_bytes); a device's memory is not divided among them.
uint64_t available_memory(const c10::Device& device, uint64_t sharers = 1);

}  // namespace danlu::device
