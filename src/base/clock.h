// base/clock.h: what durations are measured with, and the time of day.
#pragma once
#include <chrono>

namespace danlu {

/// Seconds of a clock that only goes forward. Differences count; its zero means nothing.
inline double steady_now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds since 1970 began, as the machine has it: it may be set back.
inline double unix_now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace danlu
