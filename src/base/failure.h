// base/failure.h: how a command says that it failed.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace danlu {

/// Whether what ends with it was asked to end, by a signal: nothing failed.
bool is_stop(ExitCode code);

/// Writes `what`, the hint where there is one, and as the last line "FAILED (exit N)"; where
/// is_stop(code), as a message and "STOPPED".
void write_failure(ExitCode code, std::string_view what, const std::string& hint);

/// N of a last line that write_failure has written, in whatever language; nothing of another line.
std::optional<int> exit_code_said(std::string_view line);

}  // namespace danlu
