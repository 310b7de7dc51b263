// train/rollouts/reward_settings.h: what rewards are told, from what training is told.
#pragma once
#include "eval/rewards/reward.h"
#include "settings/reinforcement.h"

namespace danlu::train {

eval::RewardSettings reward_settings(const settings::Reinforcement& told);

/// Before anything is read. Errors: UsageError, as make_reward's, for a reward that there is not.
void require_rewards(const settings::Reinforcement& told);

}  // namespace danlu::train
