// base/interrupt.h: SIGINT and SIGTERM as a flag that loops look at between steps.
#pragma once
#include <string>

#include "base/error.h"

namespace danlu {

/// Installs handlers once: the first signal sets the flag, the second one ends the process at once.
void watch_interrupts();
/// 0, or the signal received (SIGINT, SIGTERM) since the last clear.
int pending_interrupt();
/// Forget it (chat: Ctrl-C stops one answer, not the program).
void clear_interrupt();
/// Ends what `signal` asked to end: throws TerminatedError (exit code 143) for SIGTERM, else
/// InterruptedError (130).
[[noreturn]] void throw_interrupted(int signal, const std::string& message, const Hint& hint = {});

}  // namespace danlu
