// train/options/processes.h: flags that ask for several processes, where several run and where one
// does.
#pragma once
#include <cstdint>

#include "base/options.h"
#include "parallel/mesh.h"

namespace danlu::train {

/// How many copies of the model the line's processes hold, among which it divides a step (1: it
/// names none, or processes that a launcher started do it): --dp, else the processes of this
/// machine over those that share one copy. A notice names what asks for several; what of --fsdp,
/// --shard,
/// --offload is ignored is printed. Errors: UsageError if other machines are named, of which none
/// is there; UsageError if the processes cannot be divided as the line says.
int64_t replicas_in_one_process(const Options& options);

/// How `processes`, more than one, share the work. Errors: UsageError for axes that this version
/// does not have, and sizes that do not divide.
parallel::MeshShape mesh_from(const Options& options, int64_t processes);

}  // namespace danlu::train
