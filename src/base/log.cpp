#include "base/log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/lower_case.h"

namespace danlu::log {
namespace {

/// LOG_LEVEL: nullopt for a word that names no level.
std::optional<Level> level_from_environment() {
  const char* text = std::getenv("LOG_LEVEL");
  const std::string value = lower_case(text ? text : "");
  if (value.empty() || value == "info") return Level::kInfo;
  if (value == "debug") return Level::kDebug;
  if (value == "warning" || value == "warn") return Level::kWarning;
  if (value == "error") return Level::kError;
  if (value == "off") return Level::kOff;
  return std::nullopt;
}

std::atomic<Level>& current_level() {
  static std::atomic<Level> value{level_from_environment().value_or(Level::kInfo)};
  return value;
}

std::mutex& output_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::FILE* tee = nullptr;
std::atomic<bool> in_pipe{false};
std::vector<std::string> held_notices;
std::atomic<bool> holds_notices{false};
std::atomic<bool> verbose_notices{false};
std::atomic<int> num_notices{0};
constexpr int kNoticesShown = 2;

/// REQUIRES: output_mutex() is held.
void put_shown(Level at, const std::string& line) {
  if (in_pipe) {
    const bool is_there = std::fputs(line.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
    // A pipe may lead to a filter.
    if (is_there && at < Level::kError) return;
    in_pipe = is_there;  // a signal for all of a line ends its tee too
  }
  std::fputs(line.c_str(), stderr);
}

void put(Level at, std::string_view prefix, std::string_view message) {
  const std::lock_guard<std::mutex> lock(output_mutex());
  const std::string line = std::string(prefix).append(message) + "\n";
  if (at >= level()) put_shown(at, line);
  if (tee) {
    std::fputs(line.c_str(), tee);
    std::fflush(tee);
  }
}

}  // namespace

void set_level(Level level) { current_level() = level; }
Level level() { return current_level(); }

void report_unknown_environment() {
  if (!level_from_environment())
    warning("LOG_LEVEL={}: there are debug, info, warning, error and off; info is taken",
            std::getenv("LOG_LEVEL"));
  const char* own = std::getenv("DANLU_LANG");
  const std::string_view language = own ? own : "";
  for (const char* known : {"zh", "en", "C", "POSIX"}) {
    if (language.empty() || language.starts_with(known)) return;
  }
  notice("DANLU_LANG={}: there are zh and en; messages are in English", language);
}

void write(Level at, std::string_view message) {
  put(at,
      at == Level::kWarning ? translated("warning: ")
      : at == Level::kError ? translated("error: ")
                            : "",
      message);
}

void write_plain(std::string_view message) { put(Level::kError, "", message); }

void set_verbose(bool verbose) { verbose_notices = verbose; }
bool verbose() { return verbose_notices || level() <= Level::kDebug; }

HeldNotices::HeldNotices() { holds_notices = true; }
HeldNotices::~HeldNotices() {
  holds_notices = false;
  for (const std::string& notice : std::exchange(held_notices, {})) write_notice(notice);
}
void HeldNotices::drop() {
  const std::lock_guard<std::mutex> lock(output_mutex());
  held_notices.clear();
}

void write_notice(std::string_view message) {
  if (holds_notices) {
    const std::lock_guard<std::mutex> lock(output_mutex());
    held_notices.emplace_back(message);
    return;
  }
  const int shown = num_notices++;
  const bool all = verbose();
  if (!all && shown > kNoticesShown) return;
  const bool more = !all && shown == kNoticesShown;
  write(Level::kInfo,
        tr("notice: {}", more ? tr("there are more: -v shows all of them") : std::string(message)));
}

void take_pipe() {
  struct stat out{};
  if (::isatty(STDERR_FILENO) == 0 || ::fstat(STDOUT_FILENO, &out) != 0 || !S_ISFIFO(out.st_mode))
    return;
  ::signal(SIGPIPE, SIG_IGN);
  in_pipe = true;
}

bool is_in_pipe() { return in_pipe; }

void tee_to_file(const char* path) {
  const std::lock_guard<std::mutex> lock(output_mutex());
  if (tee) std::fclose(tee);
  tee = path && *path ? std::fopen(path, "a") : nullptr;
}

int file_descriptor() {
  const std::lock_guard<std::mutex> lock(output_mutex());
  return tee ? ::fileno(tee) : -1;
}

}  // namespace danlu::log
