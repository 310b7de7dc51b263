// settings/reinforcement.h: what training by rewards is told: how answers are drawn, judged and
// learnt from.
#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace danlu::settings {

/// What an answer is worth beside the others to the same prompt (its group).
enum class Advantage {
  kGroup,      ///< reward less the group's mean (GRPO), scaled as RewardScale says
  kLeaveOut,   ///< reward less the mean of the group's others (RLOO)
  kWhitened,   ///< reward, whitened over the tokens of all answers (REINFORCE++ of verl)
  kBaselined,  ///< reward less the group's mean, whitened over the tokens of all answers
  kCritic,     ///< of each token, by what a critic expects before and after it (PPO)
  kCentred,    ///< reward less the group's mean, over the deviation of these (that of ms-swift)
};

/// What kGroup and kLeaveOut divide by: a deviation of rewards. kCentred: one of centred rewards.
enum class RewardScale {
  kGroup,
  kBatch,
  kNone,
  kEachRule,  ///< each rule's scores by their own deviation in the group, then the sum's (GDPO)
};

/// Over what the loss is a mean.
enum class LossMean {
  kRows,      ///< of each answer over its tokens, then over answers (GRPO)
  kTokens,    ///< over the tokens of all answers of the step (BNPO, DAPO)
  kConstant,  ///< sum over answers × the longest answer allowed (Dr. GRPO)
};

/// What has one ratio of new to old probability.
enum class RatioLevel { kToken, kSequence };

/// What holds a ratio r back that has gone far, A being what the answer is worth.
enum class RatioGate {
  kClip,    ///< -min(r A, clipped r A) (PPO, GRPO)
  kWeight,  ///< -min(r, clip_high) A log p, the first without gradient (CISPO, arXiv 2506.13585)
  kSoft,    ///< -4/τ σ(τ (r - 1)) A (SAPO, arXiv 2511.20347)
};

/// The loss of answers that were drawn.
struct PolicyLoss {
  LossMean mean = LossMean::kRows;
  RatioLevel ratio = RatioLevel::kToken;
  RatioGate gate = RatioGate::kClip;
  double tau_positive = 1, tau_negative = 1.05;  ///< of kSoft, by the sign of A
  /// Bounds of the ratio: of kClip it counts within [1 - low, 1 + high], of kWeight up to
  /// clip_high.
  double clip_low = 0.2, clip_high = 0.2;
  double ratio_limit = 0;  ///< > 0: it is never larger, whatever the sign
  double kl = 0;           ///< the weight of the KL term in the loss; 0: none
  double temperature = 1;  ///< logits are divided by it, as where answers were drawn
  /// Answers that are left out because they were cut count in what the loss is divided by, of
  /// kTokens.
  bool counts_cut = false;
  int64_t longest = 0;  ///< tokens; of kConstant
};

/// Where in its directory a run keeps its critic.
inline constexpr const char* kCriticFolder = "critic";

/// A model that is trained beside the policy to say what an answer will be worth (PPO).
struct Critic {
  /// The model that it begins as; empty: the first reward model, else what the policy begins as.
  std::filesystem::path model;
  double gamma = 1, lambda = 0.95;  ///< of the generalised advantage estimation
  double clip = 0.2;                ///< how far a value counts from what it was in the rollout
  double weight = 0.1;              ///< of its loss, before its gradient is clipped
  double lr = 0;                    ///< 0: the policy's
  double kl = 0.05;  ///< of a token's reward, times log-probability less that of the reference
  /// > 0: behind each rollout `kl` follows the distance of its answers towards this, over
  /// kl_horizon answers; 0: it stays as it is.
  double kl_target = 0, kl_horizon = 10'000;
  bool whitens_rewards = false;    ///< rewards of tokens are divided by their deviation
  double missing_end_penalty = 0;  ///< taken from the reward of an answer that was cut

  /// TRL's adaptive controller (arXiv 1909.08593): `weight` of a rollout whose answers, so many,
  /// were so far from the reference on average, as the next rollout has it.
  double kl_after(double weight, double distance, double answers) const {
    if (kl_target <= 0) return weight;
    constexpr double kMost = 0.2;
    const double error = std::clamp(distance / kl_target - 1, -kMost, kMost);
    return weight * (1 + error * answers / kl_horizon);
  }
};

struct Reinforcement {
  PolicyLoss loss;
  Critic critic;  ///< of Advantage::kCritic
  Advantage advantage = Advantage::kGroup;
  RewardScale scale = RewardScale::kGroup;
  std::vector<std::string> rewards;
  /// Directories of reward models or of their adapters; each judges as one more of the rewards.
  std::vector<std::filesystem::path> reward_models;
  std::vector<double> reward_weights;  ///< of each of both; empty: 1
  std::string reference_column;        ///< of rows, with the right answer; "": found by its name
  int64_t cosine_length = 0, overlong_length = 0;  ///< of these rewards; 0: max_new_tokens
  int64_t overlong_buffer = 0, repetition_words = 3;
  double repetition_penalty_of_reward = -1;
  double cosine_short_wrong = -0.5, cosine_long_wrong = 0, cosine_short_right = 1,
         cosine_long_right = 0.5;
  double reward_timeout_s = 60;  ///< of a program that judges
  bool allows_code = false;      ///< answers that are code may be executed, by `python`
  std::string python = "python3";
  int64_t answers = 8;     ///< to each prompt
  int64_t iterations = 1;  ///< passes over the answers of one rollout
  int64_t steps = 1;       ///< that the answers of one rollout are divided into
  // From which `steps` follows (steps_of_rollout() in run_plan.h), where one of them is above 0.
  int64_t answers_together = 0;        ///< of a rollout, over all ranks
  int64_t micro_batches_together = 0;  ///< of each rank in a rollout
  int64_t max_new_tokens = 512;
  int64_t parts = 1;  ///< that the longest answer is drawn in, each in a rollout of its own
  double top_p = 1;
  int64_t top_k = 0;
  double min_p = 0;
  double repetition_penalty = 1;
  std::vector<std::string> stop_words;  ///< an answer ends behind the first of them in its text
  /// > 0: prompts whose answers all got one reward give way to others, in so many rounds at most.
  int64_t max_resamples = 0;
  bool masks_truncated = false;  ///< answers cut at the limit are not learnt from
  /// > 0: of an answer's reward, times its log-probability less that of the reference. Not of PPO,
  /// whose rewards of tokens have it.
  double reward_kl = 0;
  double max_kl = 0;  ///< > 0: a run whose KL goes beyond it stops
  bool logs_completions = false;
  /// What answers an answer, and so makes several turns of it: a name of
  /// eval/environments/environment.h; empty: an answer is all there is.
  std::string environment = {};
  double environment_timeout_s = 60;  ///< of a program, for the conversations of a turn
  int64_t max_turns = 1;              ///< answers in a conversation

  /// Tokens of an answer that are drawn at a time.
  int64_t tokens_of_part() const { return (max_new_tokens + parts - 1) / parts; }
  /// Tokens behind a prompt, of all turns.
  int64_t longest_answer() const { return max_new_tokens * max_turns; }
  bool has_critic() const { return advantage == Advantage::kCritic; }
  /// Whether `scale` is read.
  bool scales_rewards() const {
    return advantage == Advantage::kGroup || advantage == Advantage::kLeaveOut ||
           advantage == Advantage::kCentred;
  }
  /// The weight of the distance to the reference in rewards.
  double kl_of_rewards() const { return has_critic() ? critic.kl : reward_kl; }
  /// Whether answers are compared with those of a reference.
  bool has_reference() const { return loss.kl > 0 || kl_of_rewards() > 0; }
};

}  // namespace danlu::settings
