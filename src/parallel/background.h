// parallel/background.h: a thread beside a rank's own, for exchanges while it computes.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace danlu::parallel {

/// Has this thread compute alone: the processor's threads belong to the passes.
void leave_threads_to_passes();

/// Does one job after the other, in the order given. Jobs use groups that nobody else uses
/// (Mesh::background): ranks that give the same jobs in the same order meet.
class Background {
 public:
  /// give_up: has the job at hand throw, whatever it waits for; called from another thread.
  explicit Background(std::function<void()> give_up) : give_up_(std::move(give_up)) {}
  /// Waits for all jobs. When an exception ends it, other ranks may no longer meet them: gives up.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// get() waits, and throws what the job threw. After a job that threw the others throw the same:
  /// the ranks no longer do the same things.
  std::shared_future<void> run(std::function<void()> job);

 private:
  void work();

  std::function<void()> give_up_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> jobs_;
  bool ends_ = false;
  std::exception_ptr failed_;  ///< the thread's own
  std::thread thread_;         ///< begun with the first job
};

}  // namespace danlu::parallel
