// train/start/begin_critic.h: the critic of a run that learns from rewards by PPO.
#pragma once
#include <memory>

#include "train/rollouts/critic.h"
#include "train/start/prepared.h"

namespace danlu::train {

/// It begins as --critic_model, the first reward model or the policy says, with a head that is
/// drawn where there is none, or as the checkpoint of the policy left it. nullptr: the run has
/// none. Errors: as begin_training; ModelError where it has another tokenizer; IoError where the
/// checkpoint that is gone on from has no critic. Collective.
std::unique_ptr<Critic> begin_critic(const Prepared& run);

}  // namespace danlu::train
