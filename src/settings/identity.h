// settings/identity.h: which run this is: two runs of one identity take the same steps.
#pragma once
#include <string>

#include "base/json.h"
#include "settings/config.h"
#include "settings/run_plan.h"

namespace danlu::settings {

/// Every setting that a step's numbers depend on, the base model's fingerprint included, as flat
/// JSON whose differences can be shown key by key; the data have a hash of their own. Numbers the
/// plan derives (warm-up, decay) are in it as derived. Errors: IoError.
Json run_identity(const TrainConfig& config, const weights::CheckpointSource& source,
                  const RunPlan& plan);

/// Which model the files are that a run begins with: of a directory of Hugging Face what is in it,
/// else what was opened. Errors: IoError.
std::string model_identity(const weights::CheckpointSource& source);

/// "lr: 0.1 then, 0.2 now; …"
struct IdentityChange {
  std::string fatal;      ///< a checkpoint is of another run
  std::string tolerable;  ///< one that was named may be gone on with
};

/// saved: of a checkpoint, perhaps an older version's, which a key may be missing from. named: the
/// user named the checkpoint, and so means to change what may be changed.
IdentityChange compare_identities(const Json& saved, const Json& now, bool named);

}  // namespace danlu::settings
