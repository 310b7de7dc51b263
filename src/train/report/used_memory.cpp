#include "train/report/used_memory.h"

#include <sys/resource.h>

#include "device/memory.h"

namespace danlu::train {
namespace {

uint64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace

UsedMemory used_memory(const c10::Device& device) {
  if (device.is_cpu()) return {peak_resident_bytes(), 0};
  const auto allocator = device::allocator_figures(device);
  const int64_t bytes = allocator ? allocator->held : device::peak_memory(device);
  return {static_cast<uint64_t>(bytes), peak_resident_bytes()};
}

}  // namespace danlu::train
