#include "parallel/background.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <omp.h>

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

std::shared_future<void> Background::run(std::function<void()> job) {
  std::packaged_task<void()> task([this, job = std::move(job)] {
    if (failed_) std::rethrow_exception(failed_);
    try {
      job();
    } catch (...) {
      failed_ = std::current_exception();
      throw;
    }
  });
  std::shared_future<void> done = task.get_future().share();
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(task));
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  }
  changed_.notify_all();
  return done;
}

void Background::work() {
  leave_threads_to_passes();
  const at::NoGradGuard no_grad;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::packaged_task<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace danlu::parallel
