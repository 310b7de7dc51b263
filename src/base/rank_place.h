// base/rank_place.h: which of several processes this one is, as launchers say it.
#pragma once
#include <cstdint>
#include <string>

namespace danlu {

struct RankPlace {
  int64_t rank = 0, size = 1;   ///< among all processes of the job
  int64_t local_rank = 0;       ///< among those of this machine
  int64_t local_size = 1;       ///< processes of this machine
  bool says_local_size = true;  ///< else it is taken for that of all
  bool says_local_rank = true;  ///< else it is a guess
  std::string master_address;   ///< of rank 0's machine
  int64_t master_port = 0;
  int64_t launcher_port = 0;  ///< MASTER_PORT, where torchrun listens there itself; else 0
  /// danlu launch started all of them here, and ends them together.
  bool ends_with_others = false;
  /// Whether others wait for this one, should it end, until they hear of it.
  bool is_awaited() const { return size > 1 && !ends_with_others; }
};

/// Reads the place from the environment: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE (danlu
/// launch, torchrun, a PyTorchJob), else Open MPI's OMPI_COMM_WORLD_RANK … or Slurm's SLURM_PROCID
/// …, and MASTER_ADDR, MASTER_PORT (1000 beyond it where torchrun listens there:
/// TORCHELASTIC_USE_AGENT_STORE); one process where they name no job. Errors: UsageError naming the
/// variable that is missing or cannot be, with its value.
RankPlace rank_place_from_environment();

/// Which life of a job this is, as danlu launch says it by DANLU_RESTARTS, DANLU_JOB and
/// DANLU_JOB_RANKS, torchrun by TORCHELASTIC_RESTART_COUNT.
struct Restart {
  int64_t number = 0;  ///< 0: it is the first
  std::string job;     ///< the same in all of them; empty: another launcher
  int64_t ranks = 0;   ///< of the whole job, some of which may be lost; 0: not said
};

/// Errors: UsageError for what is no number.
Restart restart_from_environment();

}  // namespace danlu
