// train/rollouts/rollout_stream.h: steps whose samples are answers that the policy draws itself.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/batch_stream.h"
#include "eval/rewards/reward.h"
#include "infer/generate.h"
#include "models/causal_lm.h"
#include "settings/reinforcement.h"
#include "text/tokenizer.h"
#include "train/objectives/reference.h"
#include "train/rollouts/critic.h"
#include "train/rollouts/drawn_answers.h"
#include "train/stage_links.h"

namespace danlu::train {

/// Draws answers. Collective over ranks that hold one model together.
using Generator = std::function<std::vector<infer::Answer>(const std::vector<infer::Request>&)>;

/// Answers of the weights that are being trained, as they are now; with ZeRO-3 they are gathered
/// once for all requests. batch_size: requests that are answered at a time.
Generator generator_of(models::CausalLM& policy, int64_t batch_size);

struct RolloutSettings {
  settings::Reinforcement told;
  data::BatchStreamOptions batches;  ///< of a step; samples are answers
  std::vector<text::TokenId> stop_ids;
  uint64_t seed = 0;
  /// Gets a line for each answer of a rollout (JSON); empty: nobody looks at them.
  std::filesystem::path samples_file;
};

/// What a rollout is made with; outlives the stream.
struct RolloutParts {
  models::CausalLM& policy;
  StageLinks& links;
  std::shared_ptr<const data::SampleSource> prompts;  ///< SampleKind::kPrompts
  data::BatchStream::Order order;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  Generator generate;
  std::vector<std::shared_ptr<const eval::Reward>> rewards;
  /// Where rewards of tokens need one (PPO); nullptr: the policy without adapters.
  std::shared_ptr<const FrozenModel> reference = {};
  /// Learns from a step's answers before the policy does; nullptr: answers are compared with each
  /// other.
  Critic* critic = nullptr;
};

/// A rollout draws told.answers answers to each of some prompts, has them judged, and gives
/// told.steps steps of them, told.iterations times. Which prompts and which random draws are a
/// function of the global number of a sample alone, and so the same on any mesh.
class RolloutStream : public data::StepStream {
 public:
  /// Errors: UsageError if a rollout has no whole number of prompts, or `consumed` lies inside one.
  RolloutStream(RolloutParts parts, RolloutSettings settings, int64_t consumed);

  /// Errors: as infer::generate and the rewards.
  data::StepBatches next() override;
  void put_back(const data::StepBatches& step) override;
  int64_t consumed() const override { return step_ * samples_of_step(); }
  double data_wait_s() const override { return wait_s_; }
  double epoch() const override;
  /// Between rollouts: answers are drawn again from the weights that a checkpoint holds.
  bool is_resumable() const override { return step_ % steps_of_rollout() == 0; }
  std::map<std::string, double> figures() const override { return figures_; }

 private:
  int64_t samples_of_step() const { return settings_.batches.global_batch_size(); }
  int64_t steps_of_rollout() const { return settings_.told.steps * settings_.told.iterations; }
  int64_t prompts_of_rollout() const {
    return settings_.told.steps * samples_of_step() / settings_.told.answers;
  }
  void roll_out(int64_t number);
  std::vector<DrawnAnswer> draw(int64_t first_prompt, int64_t count) const;
  void judge(const std::vector<std::string>& columns, std::vector<DrawnAnswer>& answers) const;
  void examine(std::vector<DrawnAnswer>& answers) const;
  std::vector<data::Sample> samples_of(const std::vector<DrawnAnswer>& answers);
  std::vector<data::Sample> samples_by_critic(const std::vector<DrawnAnswer>& answers,
                                              const std::vector<std::optional<double>>& rewards);
  bool all_of_step_cut(const std::vector<DrawnAnswer>& answers, size_t answer) const;
  void note(const std::vector<DrawnAnswer>& answers,
            const std::vector<std::optional<double>>& rewards);
  void write_samples(const std::vector<DrawnAnswer>& answers,
                     const std::vector<std::optional<double>>& rewards,
                     const std::vector<double>& advantages) const;

  RolloutParts parts_;
  RolloutSettings settings_;
  int64_t step_ = 0;
  std::unique_ptr<data::BatchStream> answers_;  ///< of the present rollout
  std::map<std::string, double> figures_;
  double wait_s_ = 0;
  bool is_put_back_ = false;  ///< the step that next() gives was given before
  bool has_warned_of_equal_ = false;
};

}  // namespace danlu::train
