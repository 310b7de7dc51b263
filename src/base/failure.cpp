#include "base/failure.h"

#include <fmt/format.h>

#include "base/log.h"

namespace danlu {

void write_failure(ExitCode code, std::string_view what, const std::string& hint) {
  std::string message(what);
  if (!hint.empty()) message += "\n" + tr("hint: {}", hint);
  // Ctrl-C is what the user wanted: a message, not an error.
  const bool asked_for =
      code == ExitCode::kInterrupted || code == ExitCode::kTerminated || code == ExitCode::kHungUp;
  // A pipe (| tee) hides the exit code.
  message +=
      fmt::format("\n{} (exit {})", asked_for ? "STOPPED" : "FAILED", static_cast<int>(code));
  const bool as_message = asked_for && log::level() <= log::Level::kInfo;
  log::write(as_message ? log::Level::kInfo : log::Level::kError, message);
}

}  // namespace danlu
