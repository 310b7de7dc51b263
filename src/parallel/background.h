// parallel/background.h: a thread beside a rank's own, for exchanges while it computes.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "parallel/virtual_clock.h"

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

  /// A job that was given, or none.
  class Job {
   public:
    Job() = default;
    bool valid() const { return end_.valid(); }
    /// Waits, and throws what the job threw. After a job that threw the others throw the same: the
    /// ranks no longer do the same things.
    void get() const;
    /// get() would not wait.
    bool is_over() const;

   private:
    friend class Background;
    explicit Job(std::shared_future<Moment> end) : end_(std::move(end)) {}
    std::shared_future<Moment> end_;
  };
  /// Where the giver has a virtual clock, the job begins when it was given or when the last one was
  /// over, the later; who waits for it goes on from its end.
  Job run(std::function<void()> job);

 private:
  void work();
  Moment do_job(const std::function<void()>& job, const VirtualClock* giver, double given);

  std::function<void()> give_up_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<Moment()>> jobs_;
  bool ends_ = false;
  // The thread's own.
  std::exception_ptr failed_;
  std::unique_ptr<VirtualClock> clock_;
  std::thread thread_;  ///< begun with the first job
};

}  // namespace danlu::parallel
