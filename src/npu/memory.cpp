#include "npu/memory.h"

#include <torch/version.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "npu/communicator.h"
#include "npu/context.h"
#include "npu/library.h"
#include "npu/status.h"
#include "npu/streams.h"

namespace danlu::npu {
namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kSmall = kMiB, kSmallSegment = 2 * kMiB, kMedium = 10 * kMiB,
                 kMediumSegment = 20 * kMiB, kHugePage = 2 * kMiB;

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// A range of a segment. Neighbours of one segment are linked.
struct Block {
  char* begin;
  size_t bytes;
  size_t segment;  ///< bytes of the segment that it lies in
  c10::StreamId home;
  bool is_free = true;
  Block *before = nullptr, *behind = nullptr;
  std::vector<c10::StreamId> users = {};
};
struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return std::pair(a->bytes, a->begin) < std::pair(b->bytes, b->begin);
  }
};

size_t segment_bytes(size_t bytes) {
  if (bytes <= kSmall) return kSmallSegment;
  return bytes < kMedium ? kMediumSegment : rounded_up(bytes, kHugePage);
}

/// The memory of one device. Small blocks and large ones lie in segments apart, so that small ones
/// do not keep large ranges in pieces.
class DevicePool {
 public:
  explicit DevicePool(int device) : device_(device) {}

  Block* take(c10::StreamId stream, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const size_t size = rounded_up(bytes + kTail, kBlockUnit);
    end_pending(/*wait=*/false);
    Block* block = find(stream, size);
    if (!block) block = grow(stream, size);
    cut(block, size);
    block->is_free = false;
    used_[block->begin] = block;
    return block;
  }

  void give_back(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = used_.find(memory);
    if (found == used_.end()) return;
    Block* const block = found->second;
    used_.erase(found);
    if (block->users.empty()) return insert(block);
    Pending pending{block, {}};
    for (const c10::StreamId user : block->users) {
      pending.events.push_back(new_event());
      record(pending.events.back(), stream_of(device_, user));
    }
    block->users.clear();
    pending_.push_back(std::move(pending));
  }

  void hold(void* memory, c10::StreamId stream) {
    const std::lock_guard lock(mutex_);
    const auto found = used_.find(memory);
    if (found == used_.end() || found->second->home == stream) return;
    auto& users = found->second->users;
    if (std::find(users.begin(), users.end(), stream) == users.end()) users.push_back(stream);
  }

  void trim() {
    const std::lock_guard lock(mutex_);
    release_free();
  }

  /// Gives all memory back to CANN, also what is still in use.
  void close() {
    const std::lock_guard lock(mutex_);
    for (const Pending& pending : pending_) {
      for (AclEvent const event : pending.events) destroy(event);
    }
    for (void* const segment : segments_) acl().aclrtFree(segment);
    pending_.clear();
    segments_.clear();
    used_.clear();
    free_.clear();
    reserved_ = 0;
  }

 private:
  struct Pending {
    Block* block;
    std::vector<AclEvent> events;
  };
  using Free = std::set<Block*, BySize>;

  Free& free_of(c10::StreamId stream, size_t bytes) { return free_[{stream, bytes <= kSmall}]; }

  /// Whether the block lies in a segment for small blocks, and so belongs to their free list.
  static bool is_small(const Block* block) { return block->segment == kSmallSegment; }

  Block* find(c10::StreamId stream, size_t bytes) {
    Free& free = free_of(stream, bytes);
    Block wanted{nullptr, bytes, 0, stream};
    const auto found = free.lower_bound(&wanted);
    if (found == free.end()) return nullptr;
    Block* const block = *found;
    free.erase(found);
    return block;
  }

  void cut(Block* block, size_t bytes) {
    const size_t rest = block->bytes - bytes;
    const bool small = is_small(block);
    if (small ? rest < kBlockUnit : rest <= kSmall) return;
    auto* const behind = new Block{block->begin + bytes, rest, block->segment, block->home};
    behind->before = block;
    behind->behind = block->behind;
    if (behind->behind) behind->behind->before = behind;
    block->behind = behind;
    block->bytes = bytes;
    free_[{block->home, small}].insert(behind);
  }

  void insert(Block* block) {
    block->is_free = true;
    Free& free = free_[{block->home, is_small(block)}];
    const auto absorb = [&](Block* first, Block* second) {
      first->bytes += second->bytes;
      first->behind = second->behind;
      if (first->behind) first->behind->before = first;
      delete second;
      return first;
    };
    if (Block* const behind = block->behind; behind && behind->is_free && free.erase(behind) > 0)
      absorb(block, behind);
    if (Block* const before = block->before; before && before->is_free && free.erase(before) > 0)
      block = absorb(before, block);
    free.insert(block);
  }

  void end_pending(bool wait) {
    while (!pending_.empty()) {
      Pending& oldest = pending_.front();
      for (AclEvent const event : oldest.events) {
        if (!wait && !is_over(event)) return;
      }
      for (AclEvent const event : oldest.events) destroy(event);
      insert(oldest.block);
      pending_.pop_front();
    }
  }

  Block* grow(c10::StreamId stream, size_t bytes) {
    const size_t segment = segment_bytes(bytes);
    void* memory = nullptr;
    int code = acl().aclrtMalloc(&memory, segment, kAclHugeFirst);
    if (code != kAclOk) {
      release_free();
      if (Block* const block = find(stream, bytes)) return block;
      code = acl().aclrtMalloc(&memory, segment, kAclHugeFirst);
    }
    if (code != kAclOk) throw_full(code, bytes);
    reserved_ += static_cast<int64_t>(segment);
    segments_.insert(memory);
    return new Block{static_cast<char*>(memory), segment, segment, stream};
  }

  /// Waits for the device, then gives every segment that is wholly free back to CANN.
  void release_free() {
    check(acl().aclrtSynchronizeDevice(), "aclrtSynchronizeDevice");
    end_pending(/*wait=*/true);
    for (auto& [key, free] : free_) {
      for (auto it = free.begin(); it != free.end();) {
        Block* const block = *it;
        if (block->before || block->behind) {
          ++it;
          continue;
        }
        check(acl().aclrtFree(block->begin), "aclrtFree");
        segments_.erase(block->begin);
        reserved_ -= static_cast<int64_t>(block->bytes);
        it = free.erase(it);
        delete block;
      }
    }
  }

  [[noreturn]] void throw_full(int code, size_t bytes) {
    const Error error = error_of(code, "aclrtMalloc");
    if (error.code() != ExitCode::kMemory) throw_as_kind(error);
    DeviceMemory memory;
    acl().aclrtGetMemInfo(kAclHbm, &memory.free, &memory.total);
    const auto text = [](int64_t count) { return format_bytes(static_cast<uint64_t>(count)); };
    std::string line =
        tr("[npu] {} has no {} left: of {} this process's tensors have {}, {} are kept for "
           "them, {} are free",
           card_name(device_), format_bytes(bytes), format_bytes(memory.total),
           text(tensor_bytes(device_)), text(reserved_ - tensor_bytes(device_)),
           format_bytes(memory.free));
    if (const int64_t groups = communicators_bytes(device_); groups > 0)
      line += tr("; HCCL's groups of ranks take about {}", text(groups));
    throw MemoryError(line, error.hint());
  }

  const int device_;
  std::mutex mutex_;
  std::map<std::pair<c10::StreamId, bool>, Free> free_;
  std::unordered_map<void*, Block*> used_;
  std::set<void*> segments_;
  std::deque<Pending> pending_;
  std::atomic<int64_t> reserved_ = 0;
};

DevicePool& pool_of(int device) {
  static auto* const pools = [] {
    auto* const made = new std::array<DevicePool*, kMostDevices>;
    for (int i = 0; i < kMostDevices; ++i) (*made)[static_cast<size_t>(i)] = new DevicePool(i);
    return made;
  }();
  return *pools->at(static_cast<size_t>(device));
}

struct TensorCounter {
  std::atomic<int64_t> bytes{0}, peak{0};
  void add(int64_t more) {
    const int64_t now = bytes += more;
    for (int64_t seen = peak; now > seen && !peak.compare_exchange_weak(seen, now);) continue;
  }
};
TensorCounter& counter_of(int device) {
  static auto* const all = new std::array<TensorCounter, kMostDevices>;
  return all->at(static_cast<size_t>(device));
}

/// The context of a tensor's DataPtr: what release_tensor needs to free its memory.
struct Holding {
  void* memory;
  size_t bytes;
  int device;
};
void release_tensor(void* context) {
  const std::unique_ptr<Holding> holding(static_cast<Holding*>(context));
  counter_of(holding->device).add(-static_cast<int64_t>(holding->bytes));
  try {
    const Entered here(holding->device);
    pool_of(holding->device).give_back(holding->memory);
  } catch (const std::exception&) {  // the card is lost: the thread that works on it says so
  }
}

thread_local int thread_device = 0;

struct NpuAllocator : c10::Allocator {
#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(size_t bytes) override { return tensor_memory(thread_device, bytes); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const AclStream stream = stream_of(thread_device, current_stream(thread_device));
    check(acl().aclrtMemcpyAsync(to, bytes, from, bytes, kAclDeviceToDevice, stream),
          "aclrtMemcpyAsync");
  }
#else
  c10::DataPtr allocate(size_t bytes) const override { return tensor_memory(thread_device, bytes); }
#endif
};

}  // namespace

void* take(int device, c10::StreamId stream, size_t bytes) {
  enter(device);
  return pool_of(device).take(stream, bytes)->begin;
}

void give_back(void* memory) noexcept {
  try {
    pool_of(entered()).give_back(memory);
  } catch (const std::exception&) {  // as above
  }
}

void hold(void* memory, c10::StreamId stream) { pool_of(entered()).hold(memory, stream); }

c10::DataPtr tensor_memory(int device, size_t bytes) {
  const c10::Device place(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
  if (bytes == 0) return {nullptr, place};
  void* const memory = take(device, current_stream(device), bytes);
  counter_of(device).add(static_cast<int64_t>(bytes));
  return {memory, new Holding{memory, bytes, device}, &release_tensor, place};
}

c10::Allocator& allocator() {
  static auto* const one = new NpuAllocator;
  return *one;
}

int current_device() { return thread_device; }
void set_current_device(int device) noexcept { thread_device = device; }

int64_t tensor_bytes(int device) { return counter_of(device).bytes; }
int64_t tensor_peak(int device) { return counter_of(device).peak; }
void reset_tensor_peak(int device) {
  TensorCounter& counter = counter_of(device);
  counter.peak = counter.bytes.load();
}

uint64_t available_bytes(int device) {
  const Entered here(device);
  pool_of(device).trim();  // what is kept is in pieces, of which no large tensor can be made
  return device_memory(device).free;
}
void close_memory(int device) { pool_of(device).close(); }

}  // namespace danlu::npu
