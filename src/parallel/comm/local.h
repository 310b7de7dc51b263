// parallel/comm/local.h: ranks as threads of one process: no sockets, microseconds.
#pragma once
#include <cstdint>
#include <functional>

#include "parallel/mesh.h"
#include "parallel/virtual_clock.h"

namespace danlu::parallel {

/// Runs `body` once a rank, each on a thread of its own with `threads_per_rank` threads of the
/// tensor engine, and returns when all have ended. A rank that throws ends the others: what they
/// wait for throws CommError. Errors: that of the rank that failed first.
///
/// time: gives the threads clocks (VirtualClock::of_thread()), of which body's begins at 0; with
/// one thread a rank, as others' time is not seen.
void run_local_ranks(int64_t ranks, const std::function<void(World& world)>& body,
                     int threads_per_rank = 1, const VirtualTime* time = nullptr);

}  // namespace danlu::parallel
