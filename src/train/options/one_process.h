// train/options/one_process.h: what asks for several processes, while training runs in one.
#pragma once
#include <cstdint>

#include "base/options.h"

namespace danlu::train {

/// How many copies of the model the line's processes hold, among which it divides a step (1: it
/// names none): --dp, else the processes of this machine over those that share one copy. A notice
/// names what asks for several; what of --fsdp, --shard, --offload is ignored is printed.
/// Errors: UsageError if other machines or processes that are already there (WORLD_SIZE as
/// torchrun, Slurm or mpirun set it) would each train the whole; UsageError if the processes cannot
/// be divided as the line says.
int64_t replicas_in_one_process(const Options& options);

}  // namespace danlu::train
