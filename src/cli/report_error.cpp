// Errors as the person at the terminal sees them: what, hint, exit code.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/failure.h"
#include "cli/command.h"

namespace danlu::cli {
namespace {

/// Engine errors carry a stack trace below their first line; DANLU_DEBUG=1 shows it.
std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

int report(ExitCode code, std::string_view what, const std::string& hint) {
  std::fflush(stdout);  // where both go into one pipe, the error is the end
  write_failure(code, what, hint);
  return static_cast<int>(code);
}

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

}  // namespace

int report_current_error(const Command* running) {
  const std::string bug =
      tr("this is a fault of danlu; run it with DANLU_DEBUG=1 and report what it prints");
  try {
    throw;
  } catch (const Error& e) {
    const bool ours = e.code() == ExitCode::kInternal && e.hint().empty();
    return report(e.code(), e.what(), ours ? bug : e.hint());
  } catch (const std::bad_alloc&) {
    return report(ExitCode::kMemory, "out of memory", memory_hint(running));
  } catch (const std::filesystem::filesystem_error& e) {
    return report(ExitCode::kIo,
                  fmt::format("{}: {}", e.path1().string(), first_line(e.code().message())), {});
  } catch (const std::system_error& e) {
    // std::thread says no more; fmt::print says what could not be written.
    if (e.code() != std::errc::resource_unavailable_try_again)
      return report(ExitCode::kIo, first_line(e.what()), {});
    return report(ExitCode::kMemory, "the system does not allow another thread",
                  tr("lower OMP_NUM_THREADS or the number of workers, or raise the limit (ulimit "
                     "-u, ulimit -v, pids.max of the control group)"));
  } catch (const std::exception& e) {
    const std::string what = first_line(e.what());
    if (what.find("can't allocate memory") != what.npos) {
      return report(ExitCode::kMemory, tr("out of memory: {}", what), memory_hint(running));
    }
    return report(ExitCode::kInternal, tr("[internal] {}", what), bug);
  } catch (...) {
    return report(ExitCode::kInternal, "[internal] an exception without a text", bug);
  }
}

}  // namespace danlu::cli
