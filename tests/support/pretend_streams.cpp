#include "support/pretend_streams.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

namespace danlu::test {

/// The first error of an operation on a device.
class PretendFailure {
 public:
  void note(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  void rethrow() {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(std::exchange(error_, {}));
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

class PretendQueue {
 public:
  static constexpr size_t kMost = 256;
  explicit PretendQueue(PretendFailure& failure) : failure_(failure) {}

  void give(const char* what, PretendBlocks blocks, std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    pending_.push_back({what, std::move(blocks), std::move(work)});
    ++given_;
  }
  uint64_t given() const {
    const std::lock_guard lock(mutex_);
    return given_;
  }
  uint64_t num_pending() const { return given() - done_; }
  bool has_done(uint64_t number) const { return done_ >= number; }

  /// What others wait for was given before they were given the waiting, so that no two threads that
  /// each do a queue ever wait for each other: neither waits for the other to let go of its queue,
  /// but for the operation alone.
  void do_until(uint64_t number) {
    std::unique_lock lock(mutex_);
    while (!has_done(number)) {
      if (is_being_done_) {
        changed_.wait(lock);
        continue;
      }
      is_being_done_ = true;
      Operation next = std::move(pending_.front());
      pending_.pop_front();
      lock.unlock();
      run(next);
      next = {};  // memory goes before anybody hears that it is done
      lock.lock();
      ++done_;
      is_being_done_ = false;
      changed_.notify_all();
    }
  }
  void rethrow_failure() const { failure_.rethrow(); }

 private:
  struct Operation {
    const char* what;
    PretendBlocks blocks;
    std::function<void()> work;
  };

  void run(const Operation& next) {
    try {
      const at::NoGradGuard no_grad;
      for (const auto& block : next.blocks)
        TORCH_CHECK(!block->is_handed_back, next.what, " on ", block->device,
                    " uses memory that was handed back before");
      next.work();
    } catch (...) {
      failure_.note(std::current_exception());
    }
  }

  mutable std::mutex mutex_;  ///< of what follows
  std::deque<Operation> pending_;
  uint64_t given_ = 0;
  PretendFailure& failure_;
  std::condition_variable changed_;
  bool is_being_done_ = false;
  std::atomic<uint64_t> done_ = 0;
};

namespace {

/// Queues and memory live as long as the process: tensors that do come back after every static
/// object is gone.
struct PretendQueues {
  std::mutex mutex;
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, PretendQueue*> all;
  std::map<c10::DeviceIndex, PretendFailure> failures;

  static PretendQueues& get() {
    static auto* const one = new PretendQueues;
    return *one;
  }
  std::vector<PretendQueue*> of(c10::DeviceIndex device) {
    const std::lock_guard lock(mutex);
    std::vector<PretendQueue*> result;
    for (const auto& [key, queue] : all) {
      if (key.first == device) result.push_back(queue);
    }
    return result;
  }
};

/// A number below `limit`.
uint64_t chance(uint64_t limit) {
  static const char* const seed = std::getenv("DANLU_PRETEND_SEED");
  static std::atomic<uint64_t> drawn = seed ? std::strtoull(seed, nullptr, 10) << 32 : 0;
  uint64_t x = (drawn += 0x9e3779b97f4a7c15);  // splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return (x ^ (x >> 31)) % limit;
}

}  // namespace

PretendBlock::~PretendBlock() { std::free(memory); }

bool PretendPlace::is_reached() const { return !queue || queue->has_done(number); }

PretendQueue& pretend_queue(const c10::Stream& stream) {
  auto& queues = PretendQueues::get();
  const std::lock_guard lock(queues.mutex);
  PretendQueue*& queue = queues.all[{stream.device_index(), stream.id()}];
  if (!queue) queue = new PretendQueue(queues.failures[stream.device_index()]);
  return *queue;
}

void give(PretendQueue& queue, const char* what, PretendBlocks blocks, std::function<void()> work) {
  queue.give(what, std::move(blocks), std::move(work));
  const uint64_t waiting = queue.num_pending();
  if (waiting >= PretendQueue::kMost) {
    queue.do_until(queue.given() - PretendQueue::kMost / 2);
  } else if (chance(16) == 0) {
    queue.do_until(queue.given() - chance(waiting + 1));
  }
}

PretendPlace place_in(PretendQueue& queue) { return {&queue, queue.given()}; }

void wait_for(PretendQueue& queue, const PretendPlace& place) {
  if (place.queue == &queue || place.is_reached()) return;
  queue.give("waiting", {}, [place] { place.queue->do_until(place.number); });
}

void do_until(const PretendPlace& place) {
  if (!place.queue) return;
  place.queue->do_until(place.number);
  place.queue->rethrow_failure();
}

bool ask_for(const PretendPlace& place) {
  if (!place.is_reached() && chance(2) == 0) place.queue->do_until(place.number);
  return place.is_reached();
}

void do_all(const c10::Device& device) {
  for (PretendQueue* queue : PretendQueues::get().of(device.index())) do_until(place_in(*queue));
}

void hand_back(const std::shared_ptr<PretendBlock>& block) {
  const auto left = std::make_shared<std::atomic<size_t>>(block->homes.size());
  for (PretendQueue* queue : block->homes) {
    queue->give("handing back", {}, [block, left] {
      if (--*left > 0) return;
      block->is_handed_back = true;
      std::memset(block->memory, 0xff, block->bytes);
    });
  }
}

void hold(PretendBlock& block, PretendQueue& queue) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  auto& homes = block.homes;
  if (std::find(homes.begin(), homes.end(), &queue) == homes.end()) homes.push_back(&queue);
}

}  // namespace danlu::test
