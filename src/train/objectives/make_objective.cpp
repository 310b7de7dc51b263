#include "train/objectives/make_objective.h"

#include "base/error.h"
#include "train/objectives/classes.h"
#include "train/objectives/distillation.h"
#include "train/objectives/embedding.h"
#include "train/objectives/policy.h"
#include "train/objectives/preference.h"
#include "train/objectives/process_reward.h"
#include "train/objectives/ranking.h"
#include "train/objectives/reward.h"
#include "train/objectives/unpaired.h"
#include "train/objectives/weighted_tokens.h"

namespace danlu::train {
namespace {

std::vector<int64_t> ids_of_tokens(const std::vector<std::string>& names,
                                   const text::Tokenizer* tokenizer) {
  std::vector<int64_t> ids;
  for (const std::string& name : names) {
    const auto found =
        tokenizer ? tokenizer->encode(name, /*add_special=*/false) : std::vector<text::TokenId>();
    if (found.size() != 1) {
      throw UsageError(tr("[train] --reward_tokens {}: {} tokens of this tokenizer, and not one",
                          name, found.size()));
    }
    ids.push_back(found.front());
  }
  return ids;
}

}  // namespace

std::shared_ptr<const Objective> make_objective(const settings::ObjectiveConfig& config,
                                                const std::shared_ptr<const FrozenModel>& reference,
                                                const text::Tokenizer* tokenizer) {
  switch (config.kind) {
    case settings::ObjectiveKind::kPreference:
      return preference_objective(config.preference, reference);
    case settings::ObjectiveKind::kUnpaired:
      return unpaired_objective(config.unpaired, reference);
    case settings::ObjectiveKind::kClasses:
      return classes_objective(config.classes);
    case settings::ObjectiveKind::kEmbedding:
      return embedding_objective(config.embedding);
    case settings::ObjectiveKind::kRanking: {
      std::vector<int64_t> ids;
      if (config.ranking.by_tokens) {
        if (!tokenizer)
          throw UsageError(tr("[train] --task_type generative_reranker needs a tokenizer"));
        const auto found = settings::ranking_token_ids(config.ranking.tokens, *tokenizer);
        ids.assign(found.begin(), found.end());
      }
      return ranking_objective(config.ranking, ids);
    }
    case settings::ObjectiveKind::kReward:
      return reward_objective(config.reward);
    case settings::ObjectiveKind::kProcessReward: {
      const auto ids = ids_of_tokens(config.process.reward_tokens, tokenizer);
      return config.process.has_classes ? step_class_objective(ids.at(0), ids.at(1))
                                        : process_reward_objective(ids);
    }
    case settings::ObjectiveKind::kPolicy:
      return policy_objective(config.policy.loss, reference);
    case settings::ObjectiveKind::kDistillation:
      return distillation_objective(config.distillation, reference);
    case settings::ObjectiveKind::kLanguage:
      break;
  }
  if (config.averages_micro_batches) return means_of_micro_batches();
  if (config.entropy_power) return entropy_weighted_tokens(*config.entropy_power);
  if (config.anchor_weight > 0) return anchored_tokens(config.anchor_weight, reference);
  return config.weighs_by_probability ? weighted_tokens() : language_modelling();
}

}  // namespace danlu::train
