#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

namespace danlu::log {
namespace {

Level level_from_environment() {
  const char* text = std::getenv("LOG_LEVEL");
  const std::string value = text ? text : "";
  if (value == "debug" || value == "DEBUG") return Level::kDebug;
  if (value == "warning" || value == "WARNING") return Level::kWarning;
  if (value == "error" || value == "ERROR") return Level::kError;
  if (value == "off") return Level::kOff;
  return Level::kInfo;
}

std::atomic<Level>& current_level() {
  static std::atomic<Level> value{level_from_environment()};
  return value;
}

std::mutex& output_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::FILE* tee = nullptr;

}  // namespace

void set_level(Level level) { current_level() = level; }
Level level() { return current_level(); }

bool speaks_chinese() {
  if (const char* own = std::getenv("DANLU_LANG"))
    return std::string_view(own).substr(0, 2) == "zh";
  for (const char* name : {"LC_ALL", "LC_MESSAGES", "LANG"}) {
    const char* value = std::getenv(name);
    if (value && *value) return std::string_view(value).substr(0, 2) == "zh";
  }
  return false;
}

void report_unknown_language() {
  const char* own = std::getenv("DANLU_LANG");
  const std::string_view language = own ? own : "";
  for (const char* known : {"zh", "en", "C", "POSIX"}) {
    if (language.empty() || language.starts_with(known)) return;
  }
  info(
      "notice: DANLU_LANG={}: there are zh and en (only hints are translated); hints are in "
      "English",
      language);
}

void write(Level at, std::string_view message) {
  const std::lock_guard<std::mutex> lock(output_mutex());
  const char* prefix = at == Level::kWarning ? "warning: " : at == Level::kError ? "error: " : "";
  if (at >= level())
    std::fprintf(stderr, "%s%.*s\n", prefix, static_cast<int>(message.size()), message.data());
  if (tee) {
    std::fprintf(tee, "%s%.*s\n", prefix, static_cast<int>(message.size()), message.data());
    std::fflush(tee);
  }
}

void tee_to_file(const char* path) {
  const std::lock_guard<std::mutex> lock(output_mutex());
  if (tee) std::fclose(tee);
  tee = path && *path ? std::fopen(path, "a") : nullptr;
}

}  // namespace danlu::log
