#include "infer/turns.h"

#include <algorithm>
#include <iterator>

namespace danlu::infer {

int64_t Turns::enter(uint64_t group) {
  if (group == 0) {
    ++alone_;
    return now_;
  }
  Group& own = groups_[group];
  ++own.waiting;
  const int64_t turn = std::max(now_, own.next);
  own.next = turn + kTurn;
  return turn;
}

void Turns::leave(uint64_t group, bool has_begun) {
  if (has_begun) now_ += kTurn / std::max<int64_t>(1, alone_ + std::ssize(groups_));
  if (group == 0) {
    --alone_;
    return;
  }
  const auto found = groups_.find(group);
  if (--found->second.waiting == 0) groups_.erase(found);
}

}  // namespace danlu::infer
