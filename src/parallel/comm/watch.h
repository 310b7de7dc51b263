// parallel/comm/watch.h: a rank that dies, is stopped or cut off ends the job, on every machine.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "parallel/comm/calls.h"
#include "parallel/comm/judge.h"

namespace c10d {
class Store;
}

namespace danlu::parallel {

struct WatchSettings {
  int64_t rank = 0, size = 1;
  double silence_s = 6;     ///< of a rank, after which it is taken for gone
  double timeout_s = 1800;  ///< in which all ranks arrive at an exchange
  /// Ends the process; empty: says why, and leaves at once with the verdict's code, whatever the
  /// other threads are in. From a thread of the watch.
  std::function<void(const Verdict&)> end;
};

/// A pulse over the store, independent of what the rank computes: every rank reports itself, rank 0
/// judges and leaves its verdict there. A rank that hears no more of the store takes rank 0 for
/// gone.
class Watch {
 public:
  /// Makes the watch's own connection to the store.
  using OpenStore = std::function<std::shared_ptr<c10d::Store>()>;

  Watch(const WatchSettings& settings, OpenStore open_store,
        std::shared_ptr<const RankCalls> calls);
  /// Tells the others that this rank is done. Rank 0, which keeps the store, leaves last.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// From now on a rank that was never heard is silent.
  void all_are_there();
  void note_step(int64_t step);
  /// This rank ends with an error: the others end with it. An error of communication may be
  /// another's: waits for the verdict first, which then ends the process.
  void give_up(ExitCode code, const std::string& what, const std::string& hint);
  /// World's.
  void before_end(std::function<void()> tell);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace danlu::parallel
