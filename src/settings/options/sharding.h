// settings/options/sharding.h: the flags of several ecosystems that say what copies of the model
// share.
#pragma once
#include <filesystem>

#include "base/options.h"
#include "settings/config.h"
#include "settings/options/processes.h"

namespace danlu::settings {

/// What copies of the model share, and what memory or files hold it.
struct SharingOptions {
  Keeping keeping;
  int64_t sharers = 0;  ///< as MeshShape::sharers
  bool wants_state_in_host = false, wants_parameters_in_host = false;
  std::filesystem::path activations_in = {};  ///< where --activation_offload file puts them
};
/// What the sharing depends on.
struct SharingOf {
  const Processes& processes;
  OffloadTo activations_to = OffloadTo::kNone;
  bool is_planned = false;  ///< the directory need not be there
};
/// --shard, --use-distributed-optimizer, --fsdp and the stage of --deepspeed, one of which may say
/// it; with --offload and --offload_dir. Prints what of it is not honoured. Errors: UsageError for
/// two that disagree, and for an unknown word.
SharingOptions sharing_from(const Options& options, const SharingOf& of);

/// What the same flags ask for, whoever the ranks are. Errors: the same.
Sharding sharding_from(const Options& options);

/// "none", "ZeRO-1" …
std::string sharding_name(Sharding sharding);

/// Stage 0 to 3 of ZeRO. Errors: UsageError, with `flag`.
Sharding sharding_of_stage(int64_t stage, const std::string& flag);

}  // namespace danlu::settings
