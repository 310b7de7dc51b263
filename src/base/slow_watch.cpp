#include "base/slow_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <system_error>

#include "base/clock.h"
#include "base/message.h"
#include "base/progress.h"

namespace danlu {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kLeastPause_s = 1;  // between two lines, however short the patience

}  // namespace

std::string SlowNews::of(const std::string& what, const std::string& unit, double elapsed_s,
                         const WorkDone& done, const WorkDone& total) {
  const double estimate_s =
      done.effort > 0 ? elapsed_s * std::max(1.0, total.effort / done.effort) : 0;
  double& told_s = told_s_[unit];
  if (told_s > 0 && estimate_s == 0) return "";
  if (told_s > 0 && estimate_s < 2 * told_s && 2 * estimate_s > told_s) return "";
  told_s = estimate_s;
  std::string line =
      tr("{}: {} so far, {} of {} layer passes done", what, format_duration(elapsed_s),
         std::min(done.passes, total.passes), total.passes);
  if (estimate_s > 0) line += tr(", about {} {}", format_duration(estimate_s), unit);
  return line;
}

double SlowNews::told_s(const std::string& unit) const {
  const auto told = told_s_.find(unit);
  return told == told_s_.end() ? 0 : told->second;
}

SlowWatch::SlowWatch(std::function<WorkDone()> done, std::function<void(const std::string&)> say,
                     double patience_s)
    : done_(std::move(done)), say_(std::move(say)), patience_s_(patience_s) {}

SlowWatch::~SlowWatch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void SlowWatch::begin(const std::string& what, const std::string& unit, const WorkDone& total) {
  const std::lock_guard<std::mutex> lock(mutex_);
  what_ = what;
  unit_ = unit;
  total_ = total;
  start_ = done_();
  begun_s_ = steady_now_s();
  due_s_ = begun_s_ + std::max(patience_s_, 2 * news_.told_s(unit));
  running_ = true;
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {
    return;  // where threads are scarce the work goes on without being watched
  }
  // Otherwise the thread wakes before that anyway: short steps do not wake it at all.
  if (due_s_ < wake_s_) changed_.notify_one();
}

void SlowWatch::end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  running_ = false;
}

void SlowWatch::watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    const double now_s = steady_now_s();
    if (!running_) {
      wake_s_ = kNever;
      changed_.wait(lock);
    } else if (now_s < due_s_) {
      wake_s_ = due_s_;
      changed_.wait_for(lock, std::chrono::duration<double>(due_s_ - now_s));
    } else {
      speak(now_s);
    }
  }
}

void SlowWatch::speak(double now_s) {
  const double elapsed_s = now_s - begun_s_;
  const WorkDone now = done_();
  const WorkDone since = {now.passes - start_.passes, now.effort - start_.effort};
  const std::string line = news_.of(what_, unit_, elapsed_s, since, total_);
  if (!line.empty()) say_(line);
  due_s_ = now_s + std::max({elapsed_s, patience_s_, kLeastPause_s});
}

}  // namespace danlu
