// base/threads.h: how many threads there may be, and loops over them, for work that is not tensor
// math.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

namespace danlu {

/// Threads that are joined when it goes, so also those made before one that could not be made.
class ThreadGroup {
 public:
  ThreadGroup() = default;
  ~ThreadGroup() { join(); }
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;
  /// Errors: std::system_error if the system makes no more. Who waits for a signal of this thread's
  /// owner must then be given it, or the join does not end.
  void start(std::function<void()> run) { threads_.emplace_back(std::move(run)); }
  void join();
  size_t size() const { return threads_.size(); }

 private:
  std::vector<std::thread> threads_;
};

/// Threads this process may use: OMP_NUM_THREADS if set, else the CPUs it may run on, or fewer
/// where its control group grants less (base/control_group.h). Errors: UsageError if the variable
/// is no list of numbers, or asks for more than 64 and than 16 for each of those CPUs.
size_t default_thread_count();
/// A warning if OMP_NUM_THREADS asks for more than 4 threads for each of them: for commands that
/// compute, once, on one rank. Errors: UsageError as above.
void warn_of_many_threads();
/// The first number of OMP_NUM_THREADS, which may be a list with one number for each level of
/// nesting; nothing if it is no list of whole numbers from 1.
std::optional<size_t> first_thread_count(std::string_view list);
/// More than this on so many processors are refused.
size_t most_threads(size_t usable);
/// The threads of one of `sharers` processes of this machine that compute together: its part,
/// unless OMP_NUM_THREADS is set or it is bound to some of the processors.
size_t thread_count_of_sharer(size_t sharers);

/// Calls body(i) for i in [0, count) on up to `num_threads` threads; rethrows the first exception.
void parallel_for(size_t count, size_t num_threads, const std::function<void(size_t)>& body);

}  // namespace danlu
