// base/log.h: messages for the person at the terminal, on stderr; results go to stdout instead.
#pragma once
#include <fmt/format.h>

#include <string_view>

namespace danlu::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };

/// LOG_LEVEL (debug|info|warning|error|off) sets the start value; info without it.
void set_level(Level level);
Level level();

/// True if hints are to be shown in Chinese: DANLU_LANG=zh, else LC_ALL / LC_MESSAGES / LANG begin
/// with zh.
bool speaks_chinese();

/// A notice if DANLU_LANG asks for a language that hints are not translated to.
void report_unknown_language();

/// Writes one line. Thread-safe. Warnings and errors carry the prefix "warning: " / "error: ".
void write(Level level, std::string_view message);

/// Also append every line to this file (a run's train.log); empty path stops it.
void tee_to_file(const char* path);

template <typename... Args>
void debug(fmt::format_string<Args...> f, Args&&... args) {
  if (level() <= Level::kDebug) write(Level::kDebug, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::kInfo, fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::kWarning, fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace danlu::log
