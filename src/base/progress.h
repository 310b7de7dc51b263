// base/progress.h: one progress line: a bar that redraws itself on a terminal, plain lines
// elsewhere.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

namespace danlu {

/// True if `fd` is a terminal that can redraw a line (and TERM is not dumb).
bool is_terminal(int fd);

/// "1.2s", "3m20s", "4h05m", "2d03h".
std::string format_duration(double seconds);
/// 1234567 -> "1,234,567".
std::string format_count(uint64_t value);
/// "12.3 MB" (powers of 1000).
std::string format_bytes(uint64_t size_bytes);

/// Progress of `total` units on stderr. On a terminal at most ten redraws a second; on a pipe one
/// line each `plain_interval_s`. total == 0: unknown, no percentage or ETA. Thread-safe.
class ProgressBar {
 public:
  ProgressBar(std::string title, uint64_t total, std::string unit, double plain_interval_s = 10.0);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void update(uint64_t done, const std::string& extra = {});
  /// Draws the final state and ends the line.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace danlu
