#include "settings/objective_difference.h"

#include <map>
#include <set>

#include "base/message.h"

namespace danlu::settings {
namespace {

/// Flags of values, by the keys that add_differences() gives these.
const std::map<std::string, std::string>& flags_of_values() {
  static const std::map<std::string, std::string> flags = {
      {"objective.name", "--rlhf_type"},
      {"objective.pairs.loss", "--loss_type"},
      {"objective.pairs.beta", "--beta"},
      {"objective.pairs.gamma", "--simpo_gamma"},
      {"objective.pairs.label_smoothing", "--label_smoothing"},
      {"objective.pairs.likelihood_weight", "--rpo_alpha, --cpo_alpha, --pref_ftx"},
      {"objective.unpaired.beta", "--beta"},
      {"objective.unpaired.liked_weight", "--desirable_weight"},
      {"objective.unpaired.disliked_weight", "--undesirable_weight"},
      {"objective.unpaired.measures_drift", "--loss_type"},
      {"objective.embedding.loss", "--loss_type"},
      {"objective.embedding.prefixes", "--mrl_dims"},
      {"objective.embedding.temperature", "--infonce_temperature"},
      {"objective.embedding.in_batch", "--infonce_use_batch"},
      {"objective.embedding.hard_negatives", "--infonce_hard_negatives"},
      {"objective.embedding.fake_margin",
       "--infonce_mask_fake_negative, --infonce_fake_neg_margin"},
      {"objective.embedding.among_anchors", "--infonce_include_qq"},
      {"objective.embedding.among_positives", "--infonce_include_dd"},
      {"objective.reward.centring", "--center_rewards_coefficient"},
      {"objective.ranking.loss", "--loss_type"},
      {"objective.ranking.texts", "--max_positive_samples, --max_negative_samples"},
      {"objective.ranking.tokens", "--reranker_positive_token, --reranker_negative_token"},
      {"objective.ranking.list.temperature", "--listwise_reranker_temperature"},
      {"objective.ranking.list.least_texts", "--listwise_reranker_min_group_size"},
      {"objective.distillation.beta", "--beta"},
      {"objective.distillation.temperature", "--temperature"},
      {"objective.distillation.topk", "--gkd_logits_topk"},
      {"objective.distillation.sft_alpha", "--sft_alpha"},
      {"objective.distillation.lmbda", "--lmbda"},
      {"objective.distillation.max_new_tokens", "--max_completion_length"},
      {"objective.distillation.sampling", "--top_p, --top_k, --min_p, --repetition_penalty"},
      {"objective.distillation.stop_words", "--stop_words"},
      {"objective.drops", "--disable_dropout"},
      {"objective.reference", "--ref_model"},
      {"objective.base_is_reference", "--ref_adapters"},
      {"objective.reward_models", "--reward_model"},
      {"objective.policy.mean", "--loss_type"},
      {"objective.policy.gate", "--loss_type"},
      {"objective.policy.counts_cut", "--loss_type"},
      {"objective.policy.tau", "--tau_pos, --tau_neg"},
      {"objective.policy.ratio", "--importance_sampling_level"},
      {"objective.policy.clip", "--epsilon, --epsilon_high, --delta"},
      {"objective.policy.kl", "--beta, --kl_in_reward"},
      {"objective.policy.reward_kl", "--beta, --kl_in_reward"},
      {"objective.policy.temperature", "--temperature"},
      {"objective.policy.advantage", "--advantage_estimator"},
      {"objective.policy.scale", "--scale_rewards"},
      {"objective.policy.leave_out_scale", "--scale_rewards"},
      {"objective.policy.rewards", "--reward_funcs"},
      {"objective.policy.reward_weights", "--reward_weights"},
      {"objective.policy.rules.cosine",
       "--cosine_max_len, --cosine_min_len_value_wrong, --cosine_max_len_value_wrong, "
       "--cosine_min_len_value_correct, --cosine_max_len_value_correct"},
      {"objective.policy.rules.repetition", "--repetition_n_grams, --repetition_max_penalty"},
      {"objective.policy.rules.soft_overlong", "--soft_max_length, --soft_cache_length"},
      {"objective.policy.reference_column", "--reward_column"},
      {"objective.policy.answers", "--num_generations"},
      {"objective.policy.iterations", "--num_iterations"},
      {"objective.policy.steps", "--num_mini_batches"},
      {"objective.policy.max_new_tokens", "--max_completion_length"},
      {"objective.policy.top", "--top_p, --top_k"},
      {"objective.policy.min_p", "--min_p"},
      {"objective.policy.stop_words", "--stop_words"},
      {"objective.policy.repetition_penalty", "--repetition_penalty"},
      {"objective.policy.masks_truncated", "--overlong_filter"},
      {"objective.policy.max_resamples", "--dynamic_sample, --max_resample_times"},
      {"objective.policy.parts", "--partial_rollout_max_split"},
      {"objective.policy.environment", "--environment, --max_turns"},
      {"objective.policy.environment.program", "--environment"},
      {"objective.policy.environment.max_turns", "--max_turns"},
      {"objective.policy.critic.gamma", "--gamma"},
      {"objective.policy.critic.lambda", "--lam"},
      {"objective.policy.critic.clip", "--cliprange_value"},
      {"objective.policy.critic.weight", "--vf_coef"},
      {"objective.policy.critic.lr", "--critic_lr"},
      {"objective.policy.critic.kl", "--kl_beta"},
      {"objective.policy.critic.kl_target", "--ppo_target"},
      {"objective.policy.critic.missing_end_penalty", "--missing_eos_penalty"},
      {"objective.policy.critic.whitens_rewards", "--whiten_rewards"}};
  return flags;
}

bool is_named(const Json& objective, const char* name) {
  return objective.is_object() && objective.value("name", Json()) == name;
}

/// "": no flag alone says it.
std::string flags_of(const std::string& key, const Json& objective) {
  if (key == "objective.reference" && is_named(objective, "gkd")) return "--teacher_model";
  const auto flags = flags_of_values().find(key);
  return flags == flags_of_values().end() ? "" : flags->second;
}

/// objective: whose values these are, as it is now.
void add_differences(const std::string& key, const Json& then, const Json& now,
                     const Json& objective, std::string& list) {
  if (then == now) return;
  if (!then.is_object() || !now.is_object()) {
    const std::string flags = flags_of(key, objective);
    list += (list.empty() ? "" : "; ") + difference_of(key, then, now);
    if (!flags.empty()) list += " (" + flags + ")";
    return;
  }
  std::set<std::string> names;
  for (const Json* one : {&then, &now}) {
    for (const auto& [name, value] : one->items()) names.insert(name);
  }
  for (const std::string& name : names)
    add_differences(key + "." + name, then.value(name, Json()), now.value(name, Json()), objective,
                    list);
}

}  // namespace

std::string difference_of(const std::string& key, const Json& then, const Json& now) {
  const auto text = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  return tr("{}: {} then, {} now", key, text(then), text(now));
}

std::string objective_difference(const Json& then, const Json& now) {
  std::string list;
  add_differences("objective", then, now, now, list);
  const bool is_dft = is_named(then, "dft") || is_named(now, "dft");
  return is_dft && (then.is_null() || now.is_null()) ? list + " (--enable_dft_loss)" : list;
}

}  // namespace danlu::settings
