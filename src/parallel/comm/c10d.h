// parallel/comm/c10d.h: ranks as processes that libtorch's c10d connects: Gloo over TCP.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "parallel/comm/judge.h"
#include "parallel/mesh.h"

namespace danlu::parallel {

struct C10dJob {
  int64_t rank = 0, size = 1;
  std::string master_address;  ///< where rank 0 keeps the store
  int64_t master_port = 0;
  int64_t launcher_port = 0;  ///< as RankPlace says
  /// How long a rank waits for the others: to appear, and within a collective.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  int64_t restarts = 0;                          ///< ranks of another life of the job are not met
  double silence_s = 6;                          ///< after which a rank is taken for gone
  bool speaks = true;                            ///< says whom it waits for, where that takes long
  std::function<void(const Verdict&)> end = {};  ///< as WatchSettings::end
};

/// Connects to the other ranks. Errors: that of one that says it will not come; CommError naming
/// the address, and who did not come, after `timeout`; or that rank 0's port is taken. UsageError
/// naming both places of a rank that is there twice.
std::unique_ptr<World> connect_c10d(const C10dJob& job);

/// Says that this rank will not come: the others, who wait for it in connect_c10d, fail with the
/// same code and say why. Waits 30 s for a rank 0 that is not there yet, and says so. Rank 0 keeps
/// the meeting place for that: until all others know, for eight seconds at most.
void say_absent(const C10dJob& job, const Error& why);

}  // namespace danlu::parallel
