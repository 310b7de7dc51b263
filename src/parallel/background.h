// parallel/background.h: a thread that exchanges while the rank's own thread computes.
#pragma once
#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "device/stream.h"
#include "parallel/virtual_clock.h"

namespace danlu::parallel {

/// Makes this thread compute alone, because the other threads of the processor belong to passes.
void leave_threads_to_passes();

/// Does one job after the other, in the order given. Jobs use groups that nobody else uses
/// (Mesh::background), so ranks that give the same jobs in the same order meet. On a device, jobs
/// run in a stream of this thread's own. A job begins after the work that the giver's stream had
/// before run(), and later work of a thread's stream waits for the job if that thread has called
/// get().
class Background {
 public:
  /// give_up: makes the current job throw, whatever it waits for; called from another thread.
  explicit Background(std::function<void()> give_up) : give_up_(std::move(give_up)) {}
  /// Waits for all jobs. During an exception it gives up instead, because other ranks may not come.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// A job that was given to run(), or none.
  class Job {
   public:
    Job() = default;
    bool valid() const { return end_.valid(); }
    /// Waits, and throws what the job threw. All jobs after one that threw throw the same, because
    /// the ranks no longer do the same things. On a device the host waits only until the job has
    /// given its work, and the calling thread's stream waits until the work is done.
    void get() const;
    /// Whether neither get() nor the stream would wait.
    bool is_over() const;

   private:
    friend class Background;
    struct End {
      Moment moment;
      device::Event done;
    };
    Job(std::shared_future<End> end, const at::Device& device)
        : end_(std::move(end)), device_(device) {}
    std::shared_future<End> end_;
    at::Device device_ = at::kCPU;
  };
  /// Gives a job. device: where the job computes. uses: the giver's tensors that the job reads or
  /// writes there; their memory is held until the device is done with them, so the giver may free
  /// them at once. If the giver has a virtual clock, the job begins when it is given or when the
  /// last one ends, whichever is later, and a thread that waits for it goes on from its end.
  Job run(std::function<void()> job, const at::Device& device, std::vector<at::Tensor> uses = {});

 private:
  struct Given {
    std::function<void()> job;
    at::Device device;
    std::vector<at::Tensor> uses;
    device::Event before;  ///< what the giver's stream had been given
    const VirtualClock* giver;
    double at;
  };
  void work();
  Job::End do_job(Given& given);
  const device::Stream& stream_on(const at::Device& device);

  std::function<void()> give_up_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<Job::End()>> jobs_;
  bool ends_ = false;
  // The thread's own.
  std::exception_ptr failed_;
  std::unique_ptr<VirtualClock> clock_;
  std::optional<device::Stream> stream_;
  at::Device stream_device_ = at::kCPU;
  std::thread thread_;  ///< begun with the first job
};

}  // namespace danlu::parallel
