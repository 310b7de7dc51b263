// infer/turns.h: whose turn it is among groups of requests that wait: fair queueing by virtual
// time.
#pragma once
#include <cstdint>
#include <map>

namespace danlu::infer {

/// Requests of a group follow each other one turn apart, and the time of turns goes on by one when
/// each group that waits has had one request begun. So a group of a thousand and one that comes
/// later with a single request alternate, and neither waits for all of the other. Groups of one are
/// served in the order of their coming. Not thread-safe.
class Turns {
 public:
  /// The turn of a new request, lower is earlier. group: 0 for one that came alone.
  int64_t enter(uint64_t group);
  /// A request that entered waits no more: it has begun, or it was taken back.
  void leave(uint64_t group, bool has_begun);

 private:
  struct Group {
    int64_t next = 0, waiting = 0;
  };
  static constexpr int64_t kTurn = int64_t{1} << 20;
  int64_t now_ = 0, alone_ = 0;       ///< alone_: groups of one that wait
  std::map<uint64_t, Group> groups_;  ///< that wait
};

}  // namespace danlu::infer
