// base/thread_pool.h: a fixed set of threads for work that is not tensor math.
#pragma once
#include <cstddef>
#include <functional>
#include <future>
#include <memory>

namespace danlu {

/// Threads this process may use: OMP_NUM_THREADS if set, else the CPUs it may run on, or fewer
/// where its control group grants less (base/control_group.h).
size_t default_thread_count();

/// Runs submitted tasks on `num_threads` threads; the destructor waits for all of them.
class ThreadPool {
 public:
  explicit ThreadPool(size_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  /// The future carries the task's exception, if any.
  std::future<void> submit(std::function<void()> task);
  size_t size() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Calls body(i) for i in [0, count) on up to `num_threads` threads; rethrows the first exception.
void parallel_for(size_t count, size_t num_threads, const std::function<void(size_t)>& body);

}  // namespace danlu
