// parallel/comm/meeting.h: how ranks find each other before they are a World: at a store that rank
// 0 keeps.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/error.h"
#include "parallel/comm/c10d.h"

namespace danlu::parallel {

/// A connection to the store at the job's address, in the keys of this life of the job; it waits
/// until rank 0 keeps it. Errors: what c10d throws.
c10::intrusive_ptr<c10d::Store> open_store(const C10dJob& job, bool is_server);

/// The same of a rank that comes, rank 0 being the one that keeps it; says whom it waits for.
/// Errors: CommError naming the address that is unknown, taken, not reached in `job.timeout`, or
/// another program's.
c10::intrusive_ptr<c10d::Store> connect_store(const C10dJob& job);

/// Says that this rank is here. Errors: UsageError if another process is this rank or means a job
/// of another size, with the places of both: those that have come end too, unless they are at work.
void take_place(const C10dJob& job, c10d::Store& store);

/// Waits for the others. Errors: CommError naming who did not come; that of one that says it will
/// not; as take_place.
void meet(const C10dJob& job, c10d::Store& store);

}  // namespace danlu::parallel
