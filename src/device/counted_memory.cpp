#include "device/counted_memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>
#include <torch/version.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "device/block_pool.h"
#include "device/small_blocks.h"

namespace danlu::device {
namespace {

/// Below, each thread keeps some of what the C library gave (device/small_blocks.h).
constexpr size_t kSmallestBlock = 64 * 1024;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(memory_sanitizer) ||
                            __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

std::atomic<int64_t> taken{0}, most{0};
/// Null: everything is the C library's. Never destroyed: static tensors go after it would.
std::atomic<BlockPool*> pool{nullptr};
/// Whether this thread is inside the pool, whose own bookkeeping may not wait for itself.
thread_local bool is_inside = false;

struct Inside {
  Inside() { is_inside = true; }
  ~Inside() { is_inside = false; }
};

/// Whether this thread's small blocks have gone: tensors that are static outlive them.
thread_local bool has_ended = false;

/// Null: the C library's are used as they come.
SmallBlocks* small_blocks() {
  struct OfThread {
    SmallBlocks blocks;
    ~OfThread() { has_ended = true; }
  };
  if (has_ended || !pool.load(std::memory_order_relaxed)) return nullptr;
  static thread_local OfThread own;
  return &own.blocks;
}

void count(int64_t bytes) {
  const int64_t now = taken.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t before = most.load(std::memory_order_relaxed);
  while (before < now && !most.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
  }
}

void give_back(void* data) {
  if (!data) return;
  BlockPool* const blocks = pool.load(std::memory_order_acquire);
  // The C library's blocks seldom begin so.
  if (blocks && reinterpret_cast<uintptr_t>(data) % BlockPool::kUnit == 0) {
    const Inside inside;
    if (const size_t bytes = blocks->give_back(data)) {
      taken.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
      return;
    }
  }
  const size_t usable = malloc_usable_size(data);
  taken.fetch_sub(static_cast<int64_t>(usable), std::memory_order_relaxed);
  SmallBlocks* const small = small_blocks();
  if (!small || !small->keep(data, usable)) c10::free_cpu(data);
}

/// Null: the C library is asked, whose error is the one that everybody knows.
void* take_block(BlockPool& blocks, size_t bytes) {
  const Inside inside;
  try {
    return blocks.take(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void* take_small(size_t bytes) {
  SmallBlocks* const small = bytes > 0 && bytes <= SmallBlocks::kLargest ? small_blocks() : nullptr;
  if (small) {
    if (void* const kept = small->take(bytes)) return kept;
    bytes = SmallBlocks::rounded(bytes);
  }
  try {
    return c10::alloc_cpu(bytes);
  } catch (const c10::Error&) {
    if (release_host_memory() == 0) throw;
  }
  return c10::alloc_cpu(bytes);
}

at::DataPtr take(size_t bytes) {
  BlockPool* const blocks = pool.load(std::memory_order_acquire);
  void* data = nullptr;
  if (blocks && bytes >= kSmallestBlock) {
    data = take_block(*blocks, bytes);
    if (data)
      count(static_cast<int64_t>((bytes + BlockPool::kUnit - 1) / BlockPool::kUnit *
                                 BlockPool::kUnit));
  }
  if (!data) {
    data = take_small(bytes);
    count(static_cast<int64_t>(malloc_usable_size(data)));
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

/// Called by `new` when there is nothing; who cannot help throws.
void find_memory() {
  if (is_inside || release_host_memory() == 0) throw std::bad_alloc();
}

bool wants_pool() {
  const char* text = std::getenv("DANLU_HOST_MEMORY");
  const std::string name = text && *text ? text : "pool";
  if (name != "pool" && name != "malloc") {
    throw UsageError(tr("[memory] DANLU_HOST_MEMORY must be 'pool' or 'malloc', got '{}'", name));
  }
  return name == "pool" && !kSanitized;
}

bool begin() {
  static CountingAllocator counting;
  if (wants_pool()) {
    pool.store(new BlockPool, std::memory_order_release);
    std::set_new_handler(&find_memory);
  }
  // Above the default, which some libraries set again.
  c10::SetCPUAllocator(&counting, /*priority=*/1);
  return true;
}

}  // namespace

void count_host_memory() {
  static const bool begun = begin();
  (void)begun;
}

int64_t host_memory() { return taken.load(std::memory_order_relaxed); }
int64_t peak_host_memory() { return most.load(std::memory_order_relaxed); }
void reset_peak_host_memory() { most.store(host_memory(), std::memory_order_relaxed); }

int64_t mapped_host_memory() {
  const BlockPool* const blocks = pool.load(std::memory_order_acquire);
  return blocks ? static_cast<int64_t>(blocks->mapped_bytes()) : 0;
}

int64_t release_host_memory() {
  BlockPool* const blocks = pool.load(std::memory_order_acquire);
  if (!blocks) return 0;
  const Inside inside;
  return static_cast<int64_t>(blocks->release());
}

}  // namespace danlu::device
