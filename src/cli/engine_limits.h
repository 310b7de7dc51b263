// cli/engine_limits.h: what the engine's libraries need before they may be opened.
#pragma once
#include "cli/command.h"

namespace danlu::cli {

/// libgomp ends the process, OpenBLAS and pthreadpool wait for ever, deaf to signals, when a thread
/// or a buffer cannot be had: so their threads are made here once, at the same time and beside the
/// address space that the libraries and the smallest run of `command` take, and let go again.
/// Warns on the job's first rank of more threads than are of use. Errors: MemoryError with the
/// numbers, the limit in force and what set it; UsageError for OMP_NUM_THREADS (base/threads.h).
void require_engine_resources(const Command& command, const RankPlace& place);

}  // namespace danlu::cli
