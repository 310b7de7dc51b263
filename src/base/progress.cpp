#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "base/interrupt.h"
#include "base/log.h"

namespace danlu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

size_t terminal_columns() {
  struct winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

/// Cuts to `columns` bytes without splitting a UTF-8 character.
std::string fit(std::string text, size_t columns) {
  if (text.size() <= columns) return text;
  size_t end = columns;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text;
}

}  // namespace

bool is_terminal(int fd) {
  if (::isatty(fd) == 0) return false;
  const char* term = std::getenv("TERM");
  return term != nullptr && std::string_view(term) != "dumb";
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 59.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<uint64_t>(std::llround(std::min(seconds, 1e15)));
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole % 86400 / 3600);
}

std::string format_count(uint64_t value) {
  std::string digits = std::to_string(value);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string format_bytes(uint64_t size_bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  if (size_bytes < 1000) return fmt::format("{} B", size_bytes);
  double value = static_cast<double>(size_bytes);
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

struct ProgressBar::State {
  std::string title, unit;
  uint64_t total;
  double plain_interval_s;
  bool terminal = is_terminal(STDERR_FILENO) && !log::is_in_pipe();
  Clock::time_point started = Clock::now();
  Clock::time_point drawn = started;
  uint64_t done = 0;
  std::string extra;
  bool finished = false;
  std::mutex mutex;

  std::string bar() const {
    constexpr size_t kWidth = 24;
    const size_t filled = std::min<uint64_t>(kWidth, done * kWidth / total);
    return fmt::format("[{}{}] ", std::string(filled, '='), std::string(kWidth - filled, ' '));
  }

  std::string text() const {
    const double elapsed_s = seconds_between(started, Clock::now());
    const double rate = elapsed_s > 0 ? static_cast<double>(done) / elapsed_s : 0;
    std::string out = title + " ";
    if (total > 0) {
      if (terminal) out += bar();
      out += fmt::format("{}/{} {} {:.1f}%  ", format_count(done), format_count(total), unit,
                         100.0 * static_cast<double>(done) / static_cast<double>(total));
    } else {
      out += fmt::format("{} {}  ", format_count(done), unit);
    }
    out += rate >= 100 ? fmt::format("{} {}/s", format_count(static_cast<uint64_t>(rate)), unit)
                       : fmt::format("{:.2f} {}/s", rate, unit);
    if (!extra.empty()) out += "  " + extra;
    out += "  " + format_duration(elapsed_s);
    if (!finished && total > done && rate > 0) {
      out += "<" + format_duration(static_cast<double>(total - done) / rate);
    }
    return out;
  }

  void draw() {
    drawn = Clock::now();
    if (log::level() > log::Level::kInfo) return;
    if (!terminal) {
      log::write(log::Level::kInfo, text());
      return;
    }
    // \r and "erase to end of line": one line that redraws itself.
    std::fprintf(stderr, "\r%s\x1b[K%s", fit(text(), terminal_columns() - 1).c_str(),
                 finished ? "\n" : "");
    std::fflush(stderr);
    set_line_open(!finished);
  }
};

ProgressBar::ProgressBar(std::string title, uint64_t total, std::string unit,
                         double plain_interval_s)
    : state_(std::make_unique<State>()) {
  state_->title = translated(title);
  state_->unit = translated(unit);
  state_->total = total;
  state_->plain_interval_s = plain_interval_s;
}

ProgressBar::~ProgressBar() {
  // An exception is on its way: leave the cursor on a fresh line for its message.
  if (!state_->finished && state_->terminal && state_->drawn != state_->started) {
    std::fputc('\n', stderr);
    set_line_open(false);
  }
}

void ProgressBar::update(uint64_t done, const std::string& extra) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->done = done;
  if (!extra.empty()) state_->extra = extra;
  const double since_s = seconds_between(state_->drawn, Clock::now());
  if (since_s >= (state_->terminal ? 0.1 : state_->plain_interval_s)) state_->draw();
}

void ProgressBar::finish() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->finished) return;
  state_->finished = true;
  state_->draw();
}

}  // namespace danlu
