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
  const Moment& end = end_.get();
  if (VirtualClock* clock = VirtualClock::of_thread()) clock->wait_for(end);
}

bool Background::Job::is_over() const {
  if (end_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
  const VirtualClock* clock = VirtualClock::of_thread();
  return !clock || end_.get().at <= clock->now();
}

Moment Background::do_job(const std::function<void()>& job, const VirtualClock* giver,
                          double given) {
  if (giver && !clock_) clock_ = giver->beside();
  const VirtualClock::InForce in_force(giver ? clock_.get() : nullptr);
  if (giver) clock_->begin_job(given);
  job();
  return giver ? clock_->end_job() : Moment{};
}

Background::Job Background::run(std::function<void()> job) {
  const VirtualClock* giver = VirtualClock::of_thread();
  std::packaged_task<Moment()> task(
      [this, job = std::move(job), giver, given = giver ? giver->now() : 0] {
        if (failed_) std::rethrow_exception(failed_);
        try {
          return do_job(job, giver, given);
        } catch (...) {
          failed_ = std::current_exception();
          throw;
        }
      });
  const Job given(task.get_future().share());
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(task));
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  }
  changed_.notify_all();
  return given;
}

void Background::work() {
  leave_threads_to_passes();
  const at::NoGradGuard no_grad;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::packaged_task<Moment()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace danlu::parallel
