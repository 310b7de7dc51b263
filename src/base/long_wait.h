// base/long_wait.h: when somebody who waits says so: after a few seconds, then ever more seldom.
#pragma once
#include <algorithm>

#include "base/clock.h"

namespace danlu {

/// Begins when it is made.
class LongWait {
 public:
  double waited_s() const { return steady_now_s() - since_; }
  /// Whether it is time to say what is waited for; each time once.
  bool is_due() {
    const double waited = waited_s();
    if (waited < next_s_) return false;
    next_s_ = waited + std::min(3 * waited, kLongestPauseSeconds);
    return true;
  }

 private:
  static constexpr double kFirstSeconds = 5, kLongestPauseSeconds = 300;

  double since_ = steady_now_s(), next_s_ = kFirstSeconds;
};

}  // namespace danlu
