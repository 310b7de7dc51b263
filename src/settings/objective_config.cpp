#include "settings/objective_config.h"

#include <algorithm>

#include "base/error.h"

namespace danlu::settings {
namespace {

Json pair_identity(const PreferenceConfig& config) {
  return {{"loss", static_cast<int>(config.loss)},
          {"has_reference", config.has_reference},
          {"averages", config.averages},
          {"beta", config.beta},
          {"gamma", config.gamma},
          {"label_smoothing", config.label_smoothing},
          {"robust", config.robust},
          {"likelihood", static_cast<int>(config.likelihood)},
          {"likelihood_weight", config.likelihood_weight}};
}

Json unpaired_identity(const UnpairedConfig& config) {
  return {{"beta", config.beta},
          {"liked_weight", config.liked_weight},
          {"disliked_weight", config.disliked_weight},
          {"measures_drift", config.measures_drift}};
}

/// What the rewards that are numbers of a rule's settings depend on, by the rule's name.
Json rules_identity(const Reinforcement& config) {
  const auto has = [&](const char* rule) {
    return std::find(config.rewards.begin(), config.rewards.end(), rule) != config.rewards.end();
  };
  Json rules = Json::object();
  if (has("cosine")) {
    rules["cosine"] = {config.cosine_length, config.cosine_short_wrong, config.cosine_long_wrong,
                       config.cosine_short_right, config.cosine_long_right};
  }
  if (has("repetition"))
    rules["repetition"] = {config.repetition_words, config.repetition_penalty_of_reward};
  if (has("soft_overlong"))
    rules["soft_overlong"] = {config.overlong_length, config.overlong_buffer};
  return rules;
}

Json policy_identity(const Reinforcement& config) {
  const PolicyLoss& loss = config.loss;
  // Runs from before RLOO could divide have that number, which meant nothing.
  const bool leaves_out = config.advantage == Advantage::kLeaveOut;
  Json identity = {{"mean", static_cast<int>(loss.mean)},
                   {"ratio", static_cast<int>(loss.ratio)},
                   {"clip", {loss.clip_low, loss.clip_high, loss.ratio_limit}},
                   {"kl", loss.kl},
                   {"temperature", loss.temperature},
                   {"advantage", static_cast<int>(config.advantage)},
                   {"scale", static_cast<int>(leaves_out ? RewardScale::kGroup : config.scale)},
                   {"rewards", config.rewards},
                   {"reward_weights", config.reward_weights},
                   {"reference_column", config.reference_column},
                   {"answers", config.answers},
                   {"iterations", config.iterations},
                   {"steps", config.steps},
                   {"max_new_tokens", config.max_new_tokens},
                   {"top", {config.top_p, config.top_k}},
                   {"repetition_penalty", config.repetition_penalty},
                   {"masks_truncated", config.masks_truncated}};
  if (loss.gate != RatioGate::kClip) identity["gate"] = static_cast<int>(loss.gate);
  if (loss.counts_cut && config.masks_truncated) identity["counts_cut"] = true;
  if (loss.gate == RatioGate::kSoft) identity["tau"] = {loss.tau_positive, loss.tau_negative};
  if (leaves_out && config.scale != RewardScale::kNone)
    identity["leave_out_scale"] = static_cast<int>(config.scale);
  if (config.max_resamples > 0) identity["max_resamples"] = config.max_resamples;
  if (config.parts > 1) identity["parts"] = config.parts;
  if (config.reward_kl > 0) identity["reward_kl"] = config.reward_kl;
  if (config.min_p > 0) identity["min_p"] = config.min_p;
  if (!config.stop_words.empty()) identity["stop_words"] = config.stop_words;
  if (!config.environment.empty())
    identity["environment"] = {{"program", config.environment}, {"max_turns", config.max_turns}};
  if (const Json rules = rules_identity(config); !rules.empty()) identity["rules"] = rules;
  if (!config.has_critic()) return identity;
  const Critic& critic = config.critic;
  identity["critic"] = {{"gamma", critic.gamma},
                        {"lambda", critic.lambda},
                        {"clip", critic.clip},
                        {"weight", critic.weight},
                        {"lr", critic.lr},
                        {"kl", critic.kl},
                        {"missing_end_penalty", critic.missing_end_penalty}};
  if (critic.whitens_rewards) identity["critic"]["whitens_rewards"] = true;
  if (critic.kl_target > 0) identity["critic"]["kl_target"] = critic.kl_target;
  return identity;
}

Json distillation_identity(const DistillationConfig& config, const Reinforcement& drawing) {
  Json identity = {{"beta", config.beta},
                   {"temperature", config.temperature},
                   {"topk", config.topk},
                   {"sft_alpha", config.sft_alpha},
                   {"lmbda", config.lmbda}};
  if (config.lmbda == 0) return identity;
  identity["max_new_tokens"] = drawing.max_new_tokens;
  identity["sampling"] = {drawing.top_p, drawing.top_k, drawing.min_p, drawing.repetition_penalty};
  if (!drawing.stop_words.empty()) identity["stop_words"] = drawing.stop_words;
  return identity;
}

Json embedding_identity(const EmbeddingConfig& config) {
  Json identity = {{"loss", embedding_loss_name(config.loss)}};
  if (!config.prefixes.empty()) {
    for (const EmbeddingConfig::Prefix& prefix : config.prefixes)
      identity["prefixes"].push_back({prefix.size, prefix.weight});
  }
  if (config.has_pairs()) return identity;
  identity["temperature"] = config.temperature;
  identity["in_batch"] = config.in_batch;
  identity["hard_negatives"] = config.hard_negatives;
  identity["fake_margin"] = config.masks_fakes ? Json(config.fake_margin) : Json(nullptr);
  identity["among_anchors"] = config.among_anchors;
  identity["among_positives"] = config.among_positives;
  return identity;
}

Json ranking_identity(const RankingConfig& config) {
  Json identity = {{"loss", static_cast<int>(config.loss)},
                   {"by_tokens", config.by_tokens},
                   {"texts", {config.most_positives, config.most_negatives}}};
  if (config.by_tokens) identity["tokens"] = {config.tokens.positive, config.tokens.negative};
  if (config.loss == RankingLoss::kListwise)
    identity["list"] = {{"temperature", config.temperature}, {"least_texts", config.least_texts}};
  return identity;
}

Json weight_identity(const ObjectiveConfig& config) {
  if (config.entropy_power) return {{"name", "eaft"}, {"alpha", *config.entropy_power}};
  if (config.anchor_weight > 0) return {{"name", "asft"}, {"alpha", config.anchor_weight}};
  return config.weighs_by_probability ? Json{{"name", "dft"}} : Json(nullptr);
}

}  // namespace

const char* embedding_loss_name(EmbeddingConfig::Loss loss) {
  switch (loss) {
    case EmbeddingConfig::Loss::kContrast:
      return "infonce";
    case EmbeddingConfig::Loss::kCosine:
      return "cosine_similarity";
    case EmbeddingConfig::Loss::kMargin:
      return "contrastive";
    case EmbeddingConfig::Loss::kHardMargin:
      return "online_contrastive";
  }
  throw InternalError("a loss of vectors without a name");
}

Json objective_identity(const ObjectiveConfig& config) {
  if (config.kind == ObjectiveKind::kLanguage) return weight_identity(config);
  Json identity = {{"name", config.name}};
  if (config.kind == ObjectiveKind::kPreference) {
    identity["pairs"] = pair_identity(config.preference);
  } else if (config.kind == ObjectiveKind::kUnpaired) {
    identity["unpaired"] = unpaired_identity(config.unpaired);
  } else if (config.kind == ObjectiveKind::kPolicy) {
    identity["policy"] = policy_identity(config.policy);
  } else if (config.kind == ObjectiveKind::kDistillation) {
    identity["distillation"] = distillation_identity(config.distillation, config.policy);
  } else if (config.kind == ObjectiveKind::kClasses) {
    identity["classes"] = {{"problem", arch::label_problem_name(config.classes.problem)},
                           {"labels", config.classes.labels}};
  } else if (config.kind == ObjectiveKind::kEmbedding) {
    identity["embedding"] = embedding_identity(config.embedding);
  } else if (config.kind == ObjectiveKind::kRanking) {
    identity["ranking"] = ranking_identity(config.ranking);
  } else if (config.kind == ObjectiveKind::kReward) {
    identity["reward"] = {{"centring", config.reward.centring}};
  } else {
    identity["steps"] = {{"placeholder", config.process.placeholder},
                         {"reward_tokens", config.process.reward_tokens}};
    if (config.process.has_classes) identity["steps"]["head"] = "class";
  }
  if (config.base_is_reference) identity["base_is_reference"] = true;
  const bool always_drops = config.kind == ObjectiveKind::kClasses ||
                            config.kind == ObjectiveKind::kEmbedding ||
                            config.kind == ObjectiveKind::kRanking;
  if (config.drops && !always_drops) identity["drops"] = true;
  return identity;
}

}  // namespace danlu::settings
