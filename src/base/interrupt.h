// base/interrupt.h: SIGINT, SIGTERM and SIGHUP as a flag that loops look at between steps.
#pragma once
#include <string>

#include "base/error.h"

namespace danlu {

/// From here to watch_interrupts the first signal ends the process, as it does by default, but says
/// "STOPPED (exit N)" before. One that is ignored or handled stays so.
void name_interrupts();
/// Installs handlers once: the first signal sets the flag, the second one ends the process at once.
/// One that the parent process passes on and one from elsewhere are the same: a service manager
/// tells a launcher and its ranks at once.
/// SIGHUP, a terminal that is gone, comes from the kernel, the shell and the service manager alike:
/// it never counts as a second one, nor makes the next one that. Where it is ignored from the start
/// (nohup) it stays so. After it SIGPIPE is ignored: what read our output is gone too.
void watch_interrupts();
/// A second SIGINT or SIGTERM is counted too, and the third ends the process: for a program that
/// ends others with it.
void allow_second_interrupt();
/// SIGINT and SIGTERM since the last clear, what came twice by two ways counted once.
int interrupts_received();
/// What the second signal says before its line "STOPPED (exit N)", on standard
/// error and in `file`, a descriptor (-1: none).
void set_last_words(const std::string& text, int file = -1);
/// Whether standard error's last line is not ended yet, as a progress bar's: last words then begin
/// a new one.
void set_line_open(bool is_open);
/// 0, or the signal received (SIGINT, SIGTERM, SIGHUP) since the last clear.
int pending_interrupt();
/// Forget it (chat: Ctrl-C stops one answer, not the program).
void clear_interrupt();
/// "SIGTERM"
const char* interrupt_name(int signal);
/// Ends what `signal` asked to end: throws TerminatedError (exit code 143) for SIGTERM, HungUpError
/// (129) for SIGHUP, else InterruptedError (130).
[[noreturn]] void throw_interrupted(int signal, const std::string& message,
                                    const std::string& hint = {});

}  // namespace danlu
