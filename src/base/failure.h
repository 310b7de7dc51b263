// base/failure.h: how a command says that it failed.
#pragma once
#include <string>
#include <string_view>

#include "base/error.h"

namespace danlu {

/// Writes `what`, the hint where there is one, and as the last line, the same in every language,
/// "FAILED (exit N)"; of a signal that a user sent, as a message and "STOPPED".
void write_failure(ExitCode code, std::string_view what, const std::string& hint);

}  // namespace danlu
