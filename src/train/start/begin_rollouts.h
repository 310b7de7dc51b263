// train/start/begin_rollouts.h: the stream of a run whose model draws its own answers.
#pragma once
#include <memory>

#include "data/batch_stream.h"
#include "train/rollouts/critic.h"
#include "train/rollouts/distillation_stream.h"
#include "train/rollouts/rollout_stream.h"
#include "train/start/begin.h"
#include "train/start/prepared.h"

namespace danlu::train {

/// The parts of `run` and `begun`, and the critic, if there is one, outlive it. options: of a step.
/// Errors: as RolloutStream and eval::make_reward.
std::unique_ptr<RolloutStream> rollout_stream_of(const Prepared& run, Begun& begun, Critic* critic,
                                                 const data::BatchStreamOptions& options);

/// The same where a teacher looks at the answers, and no reward. Errors: as DistillationStream.
/// REQUIRES: the rows have passed require_teachable_rows().
std::unique_ptr<DistillationStream> distillation_stream_of(const Prepared& run, Begun& begun,
                                                           const data::BatchStreamOptions& options);

}  // namespace danlu::train
