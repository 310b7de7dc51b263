// Errors as the person at the terminal sees them: what, hint, exit code.
#include <cstdio>
#include <string>

#include "base/error.h"
#include "base/failure.h"
#include "cli/command.h"

namespace danlu::cli {
namespace {

std::string memory_hint(const Command* running) {
  if (running && running->trains) {
    return tr("lower the batch size or the sequence length, or use a smaller dtype");
  }
  if (running && !running->run) {
    return tr("use a smaller dtype, shorter texts or fewer at a time");
  }
  return tr(
      "give it less at a time (smaller files, fewer threads), or raise the limit (ulimit -v, the "
      "control group's)");
}

std::string hint_of(const Error& error, const Command* running) {
  if (!error.hint().empty()) return error.hint();
  if (error.code() == ExitCode::kMemory) return memory_hint(running);
  if (error.code() != ExitCode::kInternal) return "";
  return tr("this is a fault of danlu; run it with DANLU_DEBUG=1 and report what it prints");
}

}  // namespace

int report_current_error(const Command* running) {
  const Error error = current_error();
  std::fflush(stdout);  // where both go into one pipe, the error is the end
  write_failure(error.code(), error.what(), hint_of(error, running));
  return static_cast<int>(error.code());
}

}  // namespace danlu::cli
