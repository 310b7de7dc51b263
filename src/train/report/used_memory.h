// train/report/used_memory.h: the most memory that a rank had so far.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>

namespace danlu::train {

struct UsedMemory {
  /// On the host: the most that was resident. On a device: the most that its allocator held, else
  /// that tensors had, since the first step began; 0: nobody counts it.
  uint64_t bytes = 0;
  uint64_t host_bytes = 0;  ///< of a rank on a device: resident on the host; else 0
};

UsedMemory used_memory(const c10::Device& device);

}  // namespace danlu::train
