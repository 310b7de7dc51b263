// settings/options/sharding.h: the flags of several ecosystems that say what copies of the model
// share.
#pragma once
#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// --shard, --use-distributed-optimizer, --fsdp and the stage of --deepspeed, one of which may say
/// it: into config.keeping, with --offload and --offload_dir, printed with what of it is not
/// honoured. Errors: UsageError for two that disagree, and for an unknown word.
void put_sharding(const Options& options, TrainConfig& config);

/// What the same flags ask for, whoever the ranks are. Errors: the same.
Sharding sharding_from(const Options& options);

/// "none", "ZeRO-1" …
std::string sharding_name(Sharding sharding);

/// Stage 0 to 3 of ZeRO. Errors: UsageError, with `flag`.
Sharding sharding_of_stage(int64_t stage, const std::string& flag);

}  // namespace danlu::settings
