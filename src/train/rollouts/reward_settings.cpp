#include "train/rollouts/reward_settings.h"

#include <cmath>
#include <string>

namespace danlu::train {

eval::RewardSettings reward_settings(const settings::Reinforcement& told) {
  eval::RewardSettings settings;
  settings.reference_column = told.reference_column;
  settings.cosine_length = told.cosine_length > 0 ? told.cosine_length : told.max_new_tokens;
  settings.overlong_length = told.overlong_length > 0 ? told.overlong_length : told.max_new_tokens;
  settings.overlong_buffer = told.overlong_buffer;
  settings.repetition_words = told.repetition_words;
  settings.repetition_penalty = told.repetition_penalty_of_reward;
  settings.cosine_short_wrong = told.cosine_short_wrong;
  settings.cosine_long_wrong = told.cosine_long_wrong;
  settings.cosine_short_right = told.cosine_short_right;
  settings.cosine_long_right = told.cosine_long_right;
  settings.allows_code = told.allows_code;
  settings.python = told.python;
  settings.program_timeout_ms = std::llround(told.reward_timeout_s * 1000);
  return settings;
}

eval::EnvironmentSettings environment_settings(const settings::Reinforcement& told) {
  return {.timeout_ms = std::llround(told.environment_timeout_s * 1000),
          .reference_column = told.reference_column};
}

void require_rewards(const settings::Reinforcement& told) {
  if (!told.environment.empty())
    (void)eval::make_environment(told.environment, environment_settings(told));
  for (const std::string& name : told.rewards) (void)eval::make_reward(name, reward_settings(told));
}

}  // namespace danlu::train
