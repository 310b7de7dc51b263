// train/run_dir/resume.h: which checkpoint a run goes on from, and whether it may.
#pragma once
#include <optional>
#include <string>

#include "base/rank_place.h"
#include "checkpoint/checkpoint.h"
#include "train/settings.h"

namespace danlu::train {

/// Where the critic of a checkpoint of PPO is, which is whole only with it; nullopt: it has none.
std::optional<std::filesystem::path> critic_of(const checkpoint::Loaded& policy);

/// Errors: as checkpoint::open, also of its critic; IoError where that is not there.
checkpoint::Loaded open_with_critic(const std::filesystem::path& checkpoint);

/// The checkpoint to continue from: the newest whole one of job_to_go_on; --resume DIR; or with
/// `auto` the newest of the run directory that is whole; warnings name those passed over. Empty: a
/// new run. Errors: UsageError if the run directory holds something that is neither continued nor
/// to be overwritten; IoError for a damaged checkpoint named explicitly, or if damaged ones are all
/// there is.
std::optional<checkpoint::Loaded> find_checkpoint(const TrainConfig& config);

/// A job that begins again by itself: the directory of the run in which it has written a
/// checkpoint.
std::optional<std::filesystem::path> run_of_job(const OutputConfig& output, const Restart& restart);
/// Whose checkpoints such a job goes on from, whatever its line says of resuming and overwriting:
/// its name; empty: the line's rule is right for it too, or it is in its first life.
std::string job_to_go_on(const OutputConfig& output);
/// Whether `job` has written it; of any, if it is empty.
bool is_of_job(const std::filesystem::path& checkpoint, const std::string& job);

/// Whether a checkpoint belongs to the run directory itself: only then the other checkpoints there
/// are of the same run.
bool is_of_run(const checkpoint::Loaded& checkpoint, const std::filesystem::path& run_dir);

/// Checks that continuing gives the numbers the uninterrupted run would have given. With `auto`
/// every setting in run_identity must agree; a checkpoint named explicitly may change
/// lengths, rates and batch sizes (a warning lists them), not the model, the data or the tuner.
/// Errors: UsageError listing each difference with both values.
void check_resumable(const checkpoint::Loaded& checkpoint, const TrainConfig& config,
                     const Json& identity, uint64_t data_hash);

}  // namespace danlu::train
