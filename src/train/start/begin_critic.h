// train/start/begin_critic.h: the critic of a run that learns from rewards by PPO.
#pragma once
#include <memory>

#include "train/rollouts/critic.h"
#include "train/start/prepared.h"

namespace danlu::train {

/// It begins as --critic_model, the first reward model or the policy says, with a head that is
/// drawn where there is none, or as the checkpoint of the policy left it. nullptr: the run has
/// none. Errors: as begin_training; ModelError where it has another tokenizer. Collective.
std::unique_ptr<Critic> begin_critic(const Prepared& run);

/// The policy's schedule with the critic's own peak `lr`; 0: as the policy's.
settings::ScheduleConfig critic_schedule(settings::ScheduleConfig schedule, double lr);

}  // namespace danlu::train
