// device/memory.h: how much of a device's memory the tensors of this process have.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>

namespace danlu::device {

/// What a back end tells of a device of its kind, in bytes of tensors: now, and the most at one
/// time since reset_peak.
struct MemoryCounter {
  int64_t (*now)(const c10::Device& device) = nullptr;
  int64_t (*peak)(const c10::Device& device) = nullptr;
  void (*reset_peak)(const c10::Device& device) = nullptr;
};

/// Before anything is counted there. The host's is device/counted_memory.h from the beginning.
void set_memory_counter(c10::DeviceType type, const MemoryCounter& counter);

/// From now on it is counted; false: nobody can, and the numbers below are 0. Again: no effect.
bool count_memory(const c10::Device& device);
int64_t memory(const c10::Device& device);
int64_t peak_memory(const c10::Device& device);
void reset_peak_memory(const c10::Device& device);

}  // namespace danlu::device
