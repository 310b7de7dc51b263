// train/options/one_process.h: what asks for several processes, while training runs in one.
#pragma once
#include "base/options.h"

namespace danlu::train {

/// Prints what of --fsdp, --shard, --offload is honoured or ignored by one process.
/// Errors: UsageError if several processes are asked for: flags, NPROC_PER_NODE, or WORLD_SIZE as
/// torchrun, Slurm or mpirun set it.
void require_one_process(const Options& options);

}  // namespace danlu::train
