// cli/engine_limits.h: what the engine's libraries need before they may be opened.
#pragma once
#include "cli/command.h"

namespace danlu::cli {

/// libgomp ends the process, OpenBLAS and pthreadpool wait for ever, deaf to signals, when a thread
/// or a buffer cannot be had: so their threads are made here once, at the same time and beside the
/// address space that the libraries and the smallest run of `command` take, and let go again.
/// Errors: MemoryError with the numbers, the limit in force and what set it.
void require_engine_resources(const Command& command);

}  // namespace danlu::cli
