// parallel/comm/calls.h: which exchange each group of a rank is in, for those who watch it.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace danlu::parallel {

/// One group's state as others are told it.
struct CallReport {
  int64_t group = 0;           ///< groups are numbered in the order in which all ranks make them
  std::vector<int64_t> ranks;  ///< its members
  int64_t begun = 0;           ///< exchanges so far, the present one included
  std::string what;            ///< the present one; empty: none
  double for_s = 0;            ///< how long it has taken
};

/// The exchanges of one group: written by the thread that makes them, read by the watch.
class GroupCalls {
 public:
  GroupCalls(int64_t group, std::vector<int64_t> ranks) : group_(group), ranks_(std::move(ranks)) {}

  /// An exchange, from construction to destruction. `what` is a literal.
  class Call {
   public:
    Call(GroupCalls& calls, const char* what) : calls_(calls) { calls_.put(what); }
    ~Call() { calls_.put(nullptr); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    GroupCalls& calls_;
  };

  CallReport report() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return {group_, ranks_, begun_, what_ ? what_ : "", what_ ? steady_now_s() - since_s_ : 0};
  }

 private:
  void put(const char* what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    what_ = what;
    if (!what) return;
    ++begun_;
    since_s_ = steady_now_s();
  }

  const int64_t group_;
  const std::vector<int64_t> ranks_;
  mutable std::mutex mutex_;
  const char* what_ = nullptr;
  int64_t begun_ = 0;
  double since_s_ = 0;
};

/// The calls of all groups of a rank. Thread-safe.
class RankCalls {
 public:
  std::shared_ptr<GroupCalls> add(int64_t group, std::vector<int64_t> ranks) {
    const std::lock_guard<std::mutex> lock(mutex_);
    groups_.push_back(std::make_shared<GroupCalls>(group, std::move(ranks)));
    return groups_.back();
  }
  std::vector<CallReport> report() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<CallReport> all;
    for (const auto& group : groups_) all.push_back(group->report());
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<GroupCalls>> groups_;
};

}  // namespace danlu::parallel
