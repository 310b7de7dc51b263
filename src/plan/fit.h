// plan/fit.h: what to change of a training that does not fit.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "plan/memory.h"

namespace danlu::plan {

/// The stage whose ranks need the most.
StageMemory fullest_of(const Request& request);

struct Fit {
  Request request;
  std::string flags;  ///< "--recompute full --shard zero2": what it has that the other had not
  int64_t bytes = 0;  ///< of the fullest rank
};
/// The same training in at most `bytes` a rank with the fewest settings changed: smaller passes,
/// what copies share, recompute; last, adapters instead of the whole model. None: nothing of these
/// is enough; `least`, where given, is then what needs the least.
std::optional<Fit> nearest_fit(const Request& request, int64_t bytes, Fit* least = nullptr);

}  // namespace danlu::plan
