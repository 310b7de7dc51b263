// cli/job_place.h: which processes of a training job this machine starts, as flags and variables
// say it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/rank_place.h"

namespace danlu::cli {

struct JobPlace {
  int64_t nproc = 1;       ///< processes of this machine
  int64_t first_rank = 0;  ///< number of its first one
  int64_t world = 1;       ///< processes of all machines
  int64_t node = 0;        ///< number of this machine
  int64_t nodes = 1;       ///< machines
  std::string master_address = {};
  int64_t master_port = 0;
  int64_t max_restarts = 0;
  int64_t min_ranks = 1;  ///< of all machines, with which the job begins again
  double rejoin_s = 60;   ///< in which machines come back for that

  /// Whether machines agree before every life who takes part.
  bool meets() const { return nodes > 1 && max_restarts > 0; }
};

/// Whether a training command's line asks for processes that nobody has started yet: several, on
/// several machines.
bool asks_for_processes(const Options& options);
/// Whether a line of `danlu launch` says how many processes it starts, by itself or, for NPUs, by
/// NPUS_PER_NODE.
bool says_how_many(const Options& options);

/// Errors: UsageError naming what is missing or cannot be; MemoryError for more processes than
/// memory holds; IoError where no port is free.
JobPlace job_place_from(const Options& options);

/// The place of a process whose words cannot all be read: as its launcher's variables say it, else
/// that of the first process that these words would have started on this machine; one alone where
/// the others do not wait for it. Errors: as job_place_from and rank_place_from_environment.
RankPlace place_despite(const std::vector<std::string>& unread);

}  // namespace danlu::cli
