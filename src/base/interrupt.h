// base/interrupt.h: SIGINT and SIGTERM as a flag that loops look at between steps.
#pragma once

namespace danlu {

/// Installs handlers once: the first signal sets the flag, the second one ends the process at once.
void watch_interrupts();
/// 0, or the signal received (SIGINT, SIGTERM) since the last clear.
int pending_interrupt();
/// Forget it (chat: Ctrl-C stops one answer, not the program).
void clear_interrupt();

}  // namespace danlu
