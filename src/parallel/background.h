// parallel/background.h: a thread beside a rank's own, for exchanges while it computes.
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

/// Has this thread compute alone: the processor's threads belong to the passes.
void leave_threads_to_passes();

/// Does one job after the other, in the order given. Jobs use groups that nobody else uses
/// (Mesh::background): ranks that give the same jobs in the same order meet. What a job has a
/// device do is in a stream of this thread's, after all that the giver's stream had been given, and
/// before all that the stream of who waits for the job is given then.
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
    /// ranks no longer do the same things. On a device the host waits for the job's thread alone,
    /// and the calling thread's stream for what the device was given there.
    void get() const;
    /// get() would not wait, nor the stream.
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
  /// device: what the job computes on and exchanges. uses: tensors of the giver that it reads or
  /// writes there, whose memory nobody else gets before the device is done with them; who gave them
  /// may let them go at once. Where the giver has a virtual clock, the job begins when it was given
  /// or when the last one was over, the later; who waits for it goes on from its end.
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
