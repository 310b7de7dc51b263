// parallel/comm/calls.h: which exchange each group of a rank is in, for those who watch it.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
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
  std::string failure = {};    ///< what a card's links say of the group; others are not told it
};

/// What has become of the exchanges that a group gave to a card, which does them later.
struct CardProgress {
  int64_t begun = 0, over = 0;  ///< of all of them the first ones that it has come to, and done
  std::string failure;          ///< what its links say of them; empty: nothing
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

  /// Exchanges are given to a card, of which `ask` tells at any time from any thread; an empty one:
  /// no more.
  void watch_card(std::function<CardProgress()> ask) {
    const std::lock_guard<std::mutex> lock(card_mutex_);
    ask_card_ = std::move(ask);
  }
  /// Inside of a call: one more was given to the card.
  void note_given() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++given_;
  }

  CallReport report() const {
    const CardProgress card = card_progress();
    const std::lock_guard<std::mutex> lock(mutex_);
    while (!on_card_.empty() && on_card_.front().last_given <= card.over) on_card_.pop_front();
    const double now = steady_now_s();
    CallReport own{group_,      ranks_, begun_, what_ ? what_ : "", what_ ? now - since_s_ : 0,
                   card.failure};
    if (on_card_.empty()) return own;
    const OnCard& first = on_card_.front();
    own.begun = card.begun >= first.first_given ? first.call : first.call - 1;
    own.what = first.what;
    own.for_s = now - first.since_s;
    return own;
  }

 private:
  /// A call that has ended for the host, and what of it a card has to do.
  struct OnCard {
    int64_t call, first_given, last_given;
    const char* what;
    double since_s;
  };

  CardProgress card_progress() const {
    const std::lock_guard<std::mutex> lock(card_mutex_);
    return ask_card_ ? ask_card_() : CardProgress{};
  }
  void put(const char* what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!what && given_ > given_before_)
      on_card_.push_back({begun_, given_before_ + 1, given_, what_, since_s_});
    given_before_ = given_;
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
  int64_t given_ = 0, given_before_ = 0;
  mutable std::deque<OnCard> on_card_;  ///< that were not over when they were last asked for
  mutable std::mutex card_mutex_;
  std::function<CardProgress()> ask_card_;
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
