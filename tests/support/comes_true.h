// tests/support/comes_true.h: waits for what another thread does.
#pragma once
#include <chrono>
#include <functional>
#include <thread>

namespace danlu::test {

/// False where it does not within some minutes: more than a busy machine takes, and an end to what
/// a fault would leave waiting.
inline bool comes_true(const std::function<bool()>& is_true) {
  for (int looks = 0; looks < 6000; ++looks) {
    if (is_true()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

}  // namespace danlu::test
