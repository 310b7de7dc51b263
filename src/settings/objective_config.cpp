#include "settings/objective_config.h"

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

}  // namespace

Json objective_identity(const ObjectiveConfig& config) {
  if (config.kind == ObjectiveKind::kLanguage) return nullptr;
  Json identity = {{"name", config.name}};
  if (config.kind == ObjectiveKind::kPreference) {
    identity["pairs"] = pair_identity(config.preference);
  } else if (config.kind == ObjectiveKind::kUnpaired) {
    identity["unpaired"] = unpaired_identity(config.unpaired);
  } else {
    identity["steps"] = {{"placeholder", config.process.placeholder},
                         {"reward_tokens", config.process.reward_tokens}};
  }
  return identity;
}

}  // namespace danlu::settings
