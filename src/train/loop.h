// train/loop.h: step after step: logging, evaluating, saving, stopping.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "checkpoint/saver.h"
#include "data/batch_stream.h"
#include "parallel/ranks.h"
#include "train/evaluate.h"
#include "train/observer.h"
#include "train/prepare_data.h"
#include "train/report/planned_memory.h"
#include "train/rollouts/critic.h"
#include "train/run_dir/megatron_copies.h"
#include "train/run_dir/progress.h"
#include "train/run_dir/storage.h"
#include "train/settings.h"
#include "train/step.h"
#include "train/throughput.h"

namespace danlu::train {

/// Instead of evaluate(), where what is held out are prompts.
using EvaluateRewards = std::function<Evaluation(const EvaluationSettings&)>;

/// Where steps come from.
struct Steps {
  std::unique_ptr<data::StepStream> stream;
  EvaluateRewards evaluates_rewards;  ///< empty: the data is held out, not prompts
};

/// Everything a running job is made of.
struct Run {
  const TrainConfig& config;
  const RunPlan& plan;
  const Json& identity;  ///< as run_identity
  const PreparedData& data;
  TrainState& state;
  RunProgress& progress;
  data::StepStream& stream;
  RunObserver& observer;
  const Ranks& ranks;
  checkpoint::Saver& saver;
  MegatronCopies& megatron_copies;
  const Shared& run_dir;  ///< which ranks keep it
  const plan::Request& planned;
  CountedMemory& counted;
  Critic* critic = nullptr;                ///< PPO's
  EvaluateRewards evaluates_rewards = {};  ///< as Steps has it
  WorkOfTokens work = {};
  int64_t last_saved_step = 0;     ///< of the run's own directory; 0: none
  bool save_is_due = false;        ///< as soon as the stream can go on from a checkpoint
  bool evaluation_is_due = false;  ///< the same, so that the best weights can be saved
  int64_t best_when_saved = 0;  ///< progress.best_step as the checkpoint that is being saved has it
  std::vector<int64_t> as_best_when_saved = {};  ///< the same of progress.saved_as_best
};

/// Trains until plan.total_steps.
/// Errors: NumericError after max_bad_steps bad steps in a row, or where an evaluation, the weights
/// to be saved or the last loss are not finite, or all steps were skipped (a checkpoint is not
/// written); as throw_interrupted after a signal, once a checkpoint is complete; IoError while
/// saving.
void run_loop(Run& run);

/// require_finite, which fails on every rank if it fails on one.
void require_finite_everywhere(const Run& run);

}  // namespace danlu::train
