#include "base/failure.h"

#include "base/log.h"

namespace danlu {

bool is_stop(ExitCode code) {
  return code == ExitCode::kInterrupted || code == ExitCode::kTerminated ||
         code == ExitCode::kHungUp;
}

void write_failure(ExitCode code, std::string_view what, const std::string& hint) {
  std::string message(what);
  if (!hint.empty()) message += "\n" + tr("hint: {}", hint);
  // A pipe (| tee) hides the exit code.
  const int number = static_cast<int>(code);
  message +=
      "\n" + (is_stop(code) ? tr("STOPPED (exit {})", number) : tr("FAILED (exit {})", number));
  // A rank that leaves speaking to the first is at the level of errors.
  is_stop(code) ? log::write_plain(message) : log::write(log::Level::kError, message);
}

}  // namespace danlu
