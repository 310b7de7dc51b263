// train/report/console.h: a training run on the terminal: lines, and a bar below them where that is
// possible.
#pragma once
#include <cstdint>
#include <string>

namespace danlu::train {

/// On a terminal: each line scrolls up, a bar stays below. On a pipe: plain lines without control
/// characters. Lines go through the log (stderr and train.log).
class TrainConsole {
 public:
  explicit TrainConsole(int64_t total_steps);
  ~TrainConsole();
  TrainConsole(const TrainConsole&) = delete;
  TrainConsole& operator=(const TrainConsole&) = delete;

  /// Writes a line and redraws the bar at `step`; elapsed and remaining seconds stand beside it.
  void line(const std::string& text, int64_t step, double elapsed_s, double remaining_s);
  /// Removes the bar.
  void finish();

 private:
  int64_t total_steps_;
  bool terminal_, bar_drawn_ = false;
};

/// "Train:  12%|███▌                | 371/3090 [1m02s<7m33s]", `columns` wide at most.
std::string progress_bar_text(int64_t step, int64_t total_steps, double elapsed_s,
                              double remaining_s, int columns);

}  // namespace danlu::train
