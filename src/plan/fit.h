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
/// what copies share, recompute; last, where it `may_adapt`, adapters instead of the whole model.
/// Empty: nothing of these is enough; `least`, where given, is then what needs the least.
std::optional<Fit> nearest_fit(const Request& request, int64_t bytes, bool may_adapt = true,
                               Fit* least = nullptr);

/// What --recompute auto takes.
struct RecomputeChoice {
  settings::RecomputeFlags flags;
  int64_t bytes = 0;  ///< of the fullest rank
  bool fits = false;
  /// Operations of layers that run again, of those that a forward pass of the layers has, on the
  /// stage that runs the most again.
  double recomputed_share = 0;
  /// Runs less again, and needs more than there is; of several what runs the most again.
  std::optional<settings::RecomputeFlags> cheaper = {};
  int64_t cheaper_bytes = 0;
};
/// Chooses among nothing, norms, the activation function, selective, and whole layers of each
/// virtual stage from one to all: what runs the fewest operations again and needs at most `bytes` a
/// rank. Where none does, what needs the fewest bytes.
RecomputeChoice least_recompute(const Request& request, int64_t bytes);
/// "full block 3: 9.1 GB, of 10.2 GB that are available; selective would need 12.0 GB": the reasons
/// of a choice.
std::string explain(const RecomputeChoice& choice, int64_t bytes);

}  // namespace danlu::plan
