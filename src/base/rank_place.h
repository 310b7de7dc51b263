// base/rank_place.h: which of several processes this one is, as launchers say it.
#pragma once
#include <cstdint>
#include <string>

namespace danlu {

struct RankPlace {
  int64_t rank = 0, size = 1;  ///< among all processes of the job
  int64_t local_size = 1;      ///< processes of this machine
  std::string master_address;  ///< of rank 0's machine
  int64_t master_port = 0;
};

/// From the environment: RANK, WORLD_SIZE, LOCAL_WORLD_SIZE (danlu launch, torchrun, a
/// PyTorchJob), else Open MPI's OMPI_COMM_WORLD_RANK … or Slurm's SLURM_PROCID …, and MASTER_ADDR,
/// MASTER_PORT; one process where they name no job. Errors: UsageError naming the variable that is
/// missing or cannot be, with its value.
RankPlace rank_place_from_environment();

}  // namespace danlu
