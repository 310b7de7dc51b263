// data/prefetch.h: a thread that prepares values ahead of their use.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace danlu::data {

/// Calls `produce` again and again on its own thread and keeps at most `capacity` results waiting.
/// An exception of `produce` ends the stream: next() rethrows it after the values made before.
/// next() is for one thread.
template <typename T>
class Prefetcher {
 public:
  Prefetcher(std::function<T()> produce, size_t capacity)
      : produce_(std::move(produce)), capacity_(capacity), thread_([this] { run(); }) {}
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
    thread_.join();
  }

  /// The next value; `wait_s` receives the seconds this call had to wait for it.
  T next(double& wait_s) {
    const auto begin = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return !values_.empty() || error_; });
    wait_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (values_.empty()) std::rethrow_exception(error_);
    T value = std::move(values_.front());
    values_.pop_front();
    lock.unlock();
    room_.notify_one();
    return value;
  }

 private:
  void run() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        room_.wait(lock, [&] { return stopped_ || values_.size() < capacity_; });
        if (stopped_) return;
      }
      try {
        T value = produce_();
        const std::lock_guard lock(mutex_);
        values_.push_back(std::move(value));
      } catch (...) {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
      }
      filled_.notify_one();
      const std::lock_guard lock(mutex_);
      if (error_) return;
    }
  }

  std::function<T()> produce_;
  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable filled_, room_;
  std::deque<T> values_;
  std::exception_ptr error_;
  bool stopped_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace danlu::data
