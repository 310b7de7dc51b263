#include "parallel/background.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <omp.h>

#include <chrono>
#include <exception>
#include <utility>

namespace danlu::parallel {

void leave_threads_to_passes() {
  // at::set_num_threads would set those of all threads to come; the question lets libtorch set this
  // one's first.
  at::get_num_threads();
  omp_set_num_threads(1);
}

Background::~Background() {
  const bool unwinds = std::uncaught_exceptions() > 0;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    if (unwinds) jobs_.clear();
  }
  if (unwinds) give_up_();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Background::Job::get() const {
  const End& end = end_.get();
  if (VirtualClock* clock = VirtualClock::of_thread()) clock->wait_for(end.moment);
  device::Stream::current(device_).wait_for(end.done);
}

bool Background::Job::is_over() const {
  if (end_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
  const VirtualClock* clock = VirtualClock::of_thread();
  const End& end = end_.get();
  return (!clock || end.moment.at <= clock->now()) && end.done.is_over();
}

const device::Stream& Background::stream_on(const at::Device& device) {
  if (!stream_ || stream_device_ != device) {
    stream_ = device::Stream::beside(device);
    stream_device_ = device;
  }
  return *stream_;
}

Background::Job::End Background::do_job(Given& given) {
  const device::Stream& stream = stream_on(given.device);
  const device::Stream::InForce in_stream(stream);
  stream.wait_for(given.before);
  for (const at::Tensor& tensor : std::exchange(given.uses, {})) stream.hold(tensor);
  if (given.giver && !clock_) clock_ = given.giver->beside();
  const VirtualClock::InForce in_force(given.giver ? clock_.get() : nullptr);
  if (given.giver) clock_->begin_job(given.at);
  given.job();
  return {given.giver ? clock_->end_job() : Moment{}, stream.record()};
}

Background::Job Background::run(std::function<void()> job, const at::Device& device,
                                std::vector<at::Tensor> uses) {
  const VirtualClock* giver = VirtualClock::of_thread();
  std::packaged_task<Job::End()> task(
      [this, given = Given{std::move(job), device, std::move(uses),
                           device::Stream::current(device).record(), giver,
                           giver ? giver->now() : 0}]() mutable {
        if (failed_) std::rethrow_exception(failed_);
        try {
          return do_job(given);
        } catch (...) {
          failed_ = std::current_exception();
          throw;
        }
      });
  Job result(task.get_future().share(), device);
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(task));
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  }
  changed_.notify_all();
  return result;
}

void Background::work() {
  leave_threads_to_passes();
  const at::NoGradGuard no_grad;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::packaged_task<Job::End()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace danlu::parallel
