// train/rollouts/reward_settings.h: what rewards are told, from what training is told.
#pragma once
#include "eval/environments/environment.h"
#include "eval/rewards/reward.h"
#include "settings/reinforcement.h"

namespace danlu::train {

eval::RewardSettings reward_settings(const settings::Reinforcement& told);

eval::EnvironmentSettings environment_settings(const settings::Reinforcement& told);

/// Before anything is read. Errors: UsageError, as make_reward's and make_environment's, for a
/// reward or an environment that there is not.
void require_rewards(const settings::Reinforcement& told);

}  // namespace danlu::train
