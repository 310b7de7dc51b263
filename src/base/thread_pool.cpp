#include "base/thread_pool.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/control_group.h"
#include "base/error.h"

namespace danlu {

/// Above the processors of any machine; a thousand threads more are a slip that takes gigabytes.
constexpr long kMostThreads = 4096;

size_t default_thread_count() {
  if (const char* set = std::getenv("OMP_NUM_THREADS")) {
    const long count = std::strtol(set, nullptr, 10);
    if (count > kMostThreads) {
      throw UsageError(tr("[OMP_NUM_THREADS] must be at most {}, got {}", kMostThreads, set),
                       tr("unset it: danlu then takes one thread a processor core"));
    }
    if (count > 0) return static_cast<size_t>(count);
  }
  cpu_set_t allowed;
  size_t count = std::max(1u, std::thread::hardware_concurrency());
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    count = static_cast<size_t>(std::max(1, CPU_COUNT(&allowed)));
  const size_t quota = cpu_quota();
  return quota > 0 ? std::min(count, quota) : count;
}

void ThreadGroup::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::packaged_task<void()>> waiting;
  bool closing = false;
  ThreadGroup threads;  // last: they use all of the above

  void close() {
    const std::lock_guard<std::mutex> lock(mutex);
    closing = true;
    changed.notify_all();
  }

  void work() {
    for (;;) {
      std::packaged_task<void()> task;
      {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [this] { return closing || !waiting.empty(); });
        if (waiting.empty()) return;
        task = std::move(waiting.front());
        waiting.pop_front();
      }
      task();
    }
  }
};

ThreadPool::ThreadPool(size_t num_threads) : state_(std::make_unique<State>()) {
  try {
    for (size_t i = 0; i < std::max<size_t>(1, num_threads); ++i) {
      state_->threads.start([state = state_.get()] { state->work(); });
    }
  } catch (...) {
    state_->close();
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->close(); }

std::future<void> ThreadPool::submit(std::function<void()> task) {
  std::packaged_task<void()> packaged(std::move(task));
  std::future<void> result = packaged.get_future();
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->waiting.push_back(std::move(packaged));
  }
  state_->changed.notify_one();
  return result;
}

size_t ThreadPool::size() const { return state_->threads.size(); }

void parallel_for(size_t count, size_t num_threads, const std::function<void(size_t)>& body) {
  const size_t workers = std::min(count, std::max<size_t>(1, num_threads));
  if (workers <= 1) {
    for (size_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::atomic<size_t> next{0};
  std::mutex failure_mutex;
  std::exception_ptr failure;
  const auto fail = [&] {
    const std::lock_guard<std::mutex> lock(failure_mutex);
    if (!failure) failure = std::current_exception();
    next = count;  // the rest would be wasted work
  };
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < count;) {
      try {
        body(i);
      } catch (...) {
        fail();
      }
    }
  };
  ThreadGroup threads;
  try {
    for (size_t i = 1; i < workers; ++i) threads.start(work);
  } catch (...) {
    fail();
  }
  work();
  threads.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace danlu
