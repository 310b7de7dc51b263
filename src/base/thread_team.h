// base/thread_team.h: threads that share short pieces of work, thousands of times a second.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "base/threads.h"

namespace danlu {

/// A number that one thread waits for and others raise. Who waits looks for it for about a
/// millisecond, giving way to whoever else wants its processor, and sleeps then: waking takes
/// microseconds, on a virtual machine with neighbours a hundred of them and more, while looking on
/// for longer, or without giving way, would take the processor from those who have work.
class Gate {
 public:
  /// While nobody waits.
  void set(size_t value) { value_.store(value); }
  void add_one();
  /// Back once the number is `value`. REQUIRES: one waits at a time, and nobody raises it further
  /// before this is back.
  void wait_for(size_t value);

 private:
  std::atomic<size_t> value_{0};
  std::atomic<bool> sleeps_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// The threads that one thread, the owner, divides its work among; it works with them.
class ThreadTeam {
 public:
  using Body = void (*)(void* context, size_t part);

  /// `begin` runs first in each thread of the team.
  explicit ThreadTeam(void (*begin)() = [] {}) : begin_(begin) {}
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  /// body(context, part) for part in [0, parts), each in a thread of its own, part 0 in the
  /// owner's; back when all are over. Makes the threads that it lacks. Errors: the first that a
  /// part throws; std::system_error if the system makes no more threads, before anything runs.
  /// REQUIRES: parts > 0; called by the owner, not from a part.
  void run(size_t parts, Body body, void* context);
  /// The number of threads besides the owner.
  size_t size() const { return members_.size(); }

 private:
  struct Member {
    Gate tasks;  ///< how many it was given
    Body body = nullptr;
    void* context = nullptr;
  };
  void work(Member& member, size_t part);
  void take_part(Body body, void* context, size_t part);

  void (*const begin_)();
  std::vector<std::unique_ptr<Member>> members_;
  Gate done_;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  ThreadGroup threads_;
};

}  // namespace danlu
