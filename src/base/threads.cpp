#include "base/threads.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/control_group.h"
#include "base/error.h"

namespace danlu {

/// Above the processors of any machine; a thousand threads more are a slip that takes gigabytes.
constexpr long kMostThreads = 4096;

/// An empty one asks for nothing.
const char* asked_threads() {
  const char* set = std::getenv("OMP_NUM_THREADS");
  return set && *set ? set : nullptr;
}

size_t default_thread_count() {
  if (const char* set = asked_threads()) {
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

size_t thread_count_of_sharer(size_t sharers) {
  const size_t count = default_thread_count();
  cpu_set_t allowed;
  const bool is_bound =
      ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 &&
      static_cast<unsigned>(CPU_COUNT(&allowed)) < std::thread::hardware_concurrency();
  if (asked_threads() || is_bound) return count;
  return std::max<size_t>(1, count / std::max<size_t>(1, sharers));
}

void ThreadGroup::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

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
