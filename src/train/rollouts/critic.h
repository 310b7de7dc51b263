// train/rollouts/critic.h: PPO's second model, which learns beside the policy what an answer will
// be worth before each of its tokens.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/saver.h"
#include "data/batch_stream.h"
#include "train/rollouts/drawn_answers.h"
#include "train/settings.h"
#include "train/step.h"

namespace danlu::train {

using settings::kCriticFolder;

/// It has weights, gradients and an optimizer of its own, on the policy's mesh and shared by its
/// ranks like the policy's. Its methods are collective; policy: whose exchanges are to be over
/// before, and again after, because both use the same groups.
class Critic {
 public:
  /// state: of a model whose head gives one number, with value_objective. config: its own, with
  /// the model that it began as. schedule: of its learning rate.
  Critic(TrainState state, TrainConfig config, const settings::ScheduleConfig& schedule);

  /// What it expects before each token of the answers: DrawnAnswer::values.
  void find_values(const models::CausalLM& policy, std::vector<DrawnAnswer>& answers) const;
  /// Takes one step on answers with the columns of train/objectives/value.h. What it shows: the
  /// objective's metrics, critic/grad_norm and critic/lr. Errors: as run_step; NumericError where
  /// `max_bad_steps` steps in a row were not finite.
  std::map<std::string, double> learn(const models::CausalLM& policy,
                                      const data::StepBatches& batches);

  /// Writes run_dir/critic/checkpoint-<step> of `beside`, which is the policy's, and removes those
  /// of steps of which the policy has none. Errors: as checkpoint::Saver.
  void save(const models::CausalLM& policy, const checkpoint::SaveRequest& beside);
  /// The finished critic, a reward model, into run_dir/critic: that of `step`, as its checkpoint
  /// has it, or where that is gone the present one.
  void publish(const models::CausalLM& policy, const std::filesystem::path& run_dir, int64_t step);

  const TrainState& state() const { return state_; }

 private:
  TrainState state_;
  TrainConfig config_;
  settings::ScheduleConfig schedule_;
  checkpoint::Saver saver_;
};

}  // namespace danlu::train
