#include "train/report/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "base/progress.h"

namespace danlu::train {
namespace {

int terminal_columns() {
  struct winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void write_raw(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

std::string progress_bar_text(int64_t step, int64_t total_steps, double elapsed_s,
                              double remaining_s, int columns) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double part =
      total_steps > 0
          ? std::clamp(static_cast<double>(step) / static_cast<double>(total_steps), 0.0, 1.0)
          : 0;
  const std::string head = fmt::format("Train: {:3.0f}%|", 100 * part);
  const std::string tail = fmt::format("| {}/{} [{}<{}]", step, total_steps,
                                       format_duration(elapsed_s), format_duration(remaining_s));
  const int width = std::clamp(columns - static_cast<int>(head.size() + tail.size()), 0, 40);
  const int eighths = static_cast<int>(part * width * 8 + 1e-9);
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  bar += kEighths[eighths % 8];
  const int drawn = eighths / 8 + (eighths % 8 ? 1 : 0);
  return head + bar + std::string(static_cast<size_t>(std::max(0, width - drawn)), ' ') + tail;
}

TrainConsole::TrainConsole(int64_t total_steps)
    : total_steps_(total_steps),
      terminal_(is_terminal(STDERR_FILENO) && !log::is_in_pipe() &&
                log::level() <= log::Level::kInfo) {}

TrainConsole::~TrainConsole() { finish(); }

void TrainConsole::line(const std::string& text, int64_t step, double elapsed_s,
                        double remaining_s) {
  finish();
  log::info("{}", text);
  if (!terminal_) return;
  write_raw(progress_bar_text(step, total_steps_, elapsed_s, remaining_s, terminal_columns() - 1));
  bar_drawn_ = true;
}

void TrainConsole::finish() {
  if (bar_drawn_) write_raw("\r\x1b[K");
  bar_drawn_ = false;
}

}  // namespace danlu::train
