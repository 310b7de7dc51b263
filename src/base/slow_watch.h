// base/slow_watch.h: says so when work takes long, while it does, with an estimate of the whole.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace danlu {

/// How far work has come.
struct WorkDone {
  int64_t passes = 0;  ///< what people are told: layer passes
  double effort = 0;   ///< in proportion to the time that they take
};

/// What there is to say, and whether it is worth saying.
class SlowNews {
 public:
  /// "step 1 of 300: 20.0s so far, 7 of 48 layer passes done, about 2m17s a step". Works of one
  /// `unit` ("a step") are thought to take equally long: once an estimate was given, "" unless it
  /// is now twice or half of that. Without anything done there is no estimate.
  std::string of(const std::string& what, const std::string& unit, double elapsed_s,
                 const WorkDone& done, const WorkDone& total);
  /// The estimate given last for this unit; 0: none.
  double told_s(const std::string& unit) const;

 private:
  std::map<std::string, double> told_s_;
};

/// A thread that waits. Work that ends within `patience_s` costs next to nothing and says nothing.
class SlowWatch {
 public:
  /// `done` is asked from the thread of the watch at any time from begin() on; `say` is called
  /// there, only between begin() and end().
  SlowWatch(std::function<WorkDone()> done, std::function<void(const std::string&)> say,
            double patience_s = 20);
  ~SlowWatch();
  SlowWatch(const SlowWatch&) = delete;
  SlowWatch& operator=(const SlowWatch&) = delete;

  /// Work begins that is `total` long. SlowNews is asked after patience_s, then at twice the time
  /// each.
  void begin(const std::string& what, const std::string& unit, const WorkDone& total);
  void end();

 private:
  void watch();
  void speak(double now_s);

  std::function<WorkDone()> done_;
  std::function<void(const std::string&)> say_;
  double patience_s_;
  std::mutex mutex_;  ///< of all that follows
  std::condition_variable changed_;
  bool running_ = false, stop_ = false;
  std::string what_, unit_;
  WorkDone start_, total_;
  double begun_s_ = 0, due_s_ = 0, wake_s_ = 0;
  SlowNews news_;
  std::thread thread_;
};

}  // namespace danlu
