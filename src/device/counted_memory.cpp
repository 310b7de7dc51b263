#include "device/counted_memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>
#include <torch/version.h>

#include <atomic>
#include <cstring>

namespace danlu::device {
namespace {

std::atomic<int64_t> taken{0}, most{0};

int64_t size_of(void* data) { return static_cast<int64_t>(malloc_usable_size(data)); }

void give_back(void* data) {
  taken.fetch_sub(size_of(data), std::memory_order_relaxed);
  c10::free_cpu(data);
}

at::DataPtr take(size_t bytes) {
  void* data = c10::alloc_cpu(bytes);
  const int64_t now = taken.fetch_add(size_of(data), std::memory_order_relaxed) + size_of(data);
  int64_t before = most.load(std::memory_order_relaxed);
  while (before < now && !most.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
  }
  return {data, data, &give_back, at::kCPU};
}

class CountingAllocator final : public at::Allocator {
 public:
#if TORCH_VERSION_MAJOR >= 2
  at::DataPtr allocate(size_t bytes) override { return take(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
#else
  at::DataPtr allocate(size_t bytes) const override { return take(bytes); }
#endif
  at::DeleterFnPtr raw_deleter() const override { return &give_back; }
};

}  // namespace

void count_host_memory() {
  static CountingAllocator counting;
  // Above the default, which some libraries set again.
  static const bool set = (c10::SetCPUAllocator(&counting, /*priority=*/1), true);
  (void)set;
}

int64_t host_memory() { return taken.load(std::memory_order_relaxed); }
int64_t peak_host_memory() { return most.load(std::memory_order_relaxed); }
void reset_peak_host_memory() { most.store(host_memory(), std::memory_order_relaxed); }

}  // namespace danlu::device
