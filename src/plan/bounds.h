// plan/bounds.h: what a plan takes at least, without simulating it, so that a search may leave most
// plans out.
#pragma once
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/rank_memory.h"
#include "plan/stage_time.h"

namespace danlu::plan {

/// Bounds of requests that differ in ZeRO, recompute and the optimizer's offload alone.
class Bounds {
 public:
  /// `machine` outlives it. Errors: UsageError of sizes that do not go together.
  Bounds(const Request& request, const Machine& machine);

  /// No step of make_plan is shorter. REQUIRES: an order other than zero bubble, whose last work
  /// is not a backward.
  double seconds(const Request& request) const;
  /// The bytes of the fullest rank, with the allocator's part.
  int64_t bytes(const Request& request);
  /// The bytes of the host of the node where the fullest rank is.
  double host_bytes(const Request& request);

 private:
  struct StageTime {
    double work = 0;   ///< of a micro-batch
    double first = 0;  ///< of it, the first run of layers
  };
  StageTime time_of(size_t stage, const Request& request, StageClock& clock) const;
  const Memory& memory(size_t stage, const Request& request);
  /// The fullest stage, and its bytes before the allocator's part. The first holds most passes, the
  /// last the head: no other has more.
  std::pair<size_t, int64_t> fullest(const Request& request);

  const Machine& machine_;
  std::map<std::tuple<size_t, std::string, int, bool>, Memory> memory_;
  std::map<std::pair<size_t, std::string>, double> away_;
  std::vector<arch::Stage> stages_;
  std::vector<Elements> elements_;
  bool alike_ = true;  ///< all stages but the first and the last one
};

}  // namespace danlu::plan
