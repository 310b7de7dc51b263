// train/start/earlier_run.h: what a run that begins goes on from, and what an earlier call of the
// same run left undone.
#pragma once
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "parallel/ranks.h"
#include "train/loop.h"
#include "train/run_dir/continued.h"
#include "train/run_dir/storage.h"
#include "train/settings.h"
#include "weights/convert/checkpoint_source.h"

namespace danlu::train {

struct EarlierRun {
  std::optional<checkpoint::Loaded> checkpoint;  ///< that the run goes on from
  bool is_own = false;                           ///< the checkpoint is of the run's own directory
};

/// Errors: as find_checkpoint_everywhere; of a run that begins anew, as refuse_to_lose_files.
/// Collective.
EarlierRun find_earlier_run(const TrainConfig& config, const Ranks& ranks, const Shared& run_dir);

/// Makes of `config` what a run that goes on was begun with, of what its version had no name for:
/// the mean over targets, steps that end with their epoch, MindSpeed-LLM's templates under
/// LLaMA-Factory's names, adapters in the reference. A line of the log says each.
void go_on_as_begun(const EarlierRun& earlier, TrainConfig& config);

/// Where the weights of a run come from, and the training of another program that they bring along.
struct Origin {
  std::string described;
  std::optional<Continued> continued;  ///< nothing where a checkpoint of ours is gone on from
};
/// Errors: as continued_from.
Origin origin_of(const TrainConfig& config, const weights::CheckpointSource& source,
                 const Json& identity, const EarlierRun& earlier);

/// Whether all steps are done, or the run stopped early, and the reports are in place, which is
/// then said. Collective.
bool is_complete(const TrainConfig& config, const RunPlan& plan, const TrainState& state,
                 const RunProgress& progress, const Ranks& ranks);

/// Does what a kill after the newest checkpoint left undone. REQUIRES: `from` is of the run's own
/// directory.
void make_good(Run& run, const checkpoint::Loaded& from);

}  // namespace danlu::train
