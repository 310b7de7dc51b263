// base/log.h: messages for the person at the terminal, on stderr; results go to stdout.
#pragma once
#include <string_view>

#include "base/message.h"

namespace danlu::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };

/// LOG_LEVEL (debug|info|warning|error|off, in any case) sets the start value; info without it.
void set_level(Level level);
Level level();

/// A notice if DANLU_LANG asks for a language that there is no catalogue for, a warning if
/// LOG_LEVEL names no level.
void report_unknown_environment();

/// Writes one line. Thread-safe. Warnings and errors carry the prefix "warning: " / "error: ".
void write(Level level, std::string_view message);

/// Writes one line without a prefix at every level but off: what is no error, and must be said.
void write_plain(std::string_view message);

/// -v: every notice is shown, not the first few. LOG_LEVEL=debug shows them too.
void set_verbose(bool verbose);
bool verbose();

/// Writes "notice: …", or after two of them one line that says there are more.
void write_notice(std::string_view message);

/// While it is there notices wait; they are written when it goes, unless another process says them.
/// One at a time.
class HeldNotices {
 public:
  HeldNotices();
  ~HeldNotices();
  HeldNotices(const HeldNotices&) = delete;
  HeldNotices& operator=(const HeldNotices&) = delete;
  void drop();
};

/// Lines go to standard output from now on where that is a pipe and standard error a terminal: a
/// script's `| tee FILE` then has them, and the terminal through it. Errors go to both. Until the
/// pipe breaks.
void take_pipe();
bool is_in_pipe();

/// Appends every line to this file too (a run's train.log); an empty path stops it.
void tee_to_file(const char* path);
/// The descriptor of that file; -1: there is none.
int file_descriptor();

template <typename... Args>
void debug(fmt::format_string<Args...> f, Args&&... args) {
  if (level() <= Level::kDebug) write(Level::kDebug, tr(f, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::kInfo, tr(f, std::forward<Args>(args)...));
}
/// What is good to know and asks for nothing.
template <typename... Args>
void notice(fmt::format_string<Args...> f, Args&&... args) {
  write_notice(tr(f, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::kWarning, tr(f, std::forward<Args>(args)...));
}

}  // namespace danlu::log
