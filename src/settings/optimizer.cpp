#include "settings/optimizer.h"

#include <cmath>
#include <limits>

#include "base/error.h"

namespace danlu::settings {

DecayRule decay_rule_from_name(const std::string& name) {
  if (name == "all") return DecayRule::kAll;
  if (name == "matrices") return DecayRule::kMatrices;
  throw UsageError(tr("[weight_decay_on] must be all or matrices, got '{}'", name));
}

std::string decay_rule_name(DecayRule rule) { return rule == DecayRule::kAll ? "all" : "matrices"; }

void AdamWConfig::validate() const {
  const auto bad = [](const char* field, double got, const char* rule) {
    throw UsageError(tr("[adamw] {} must be {}, got {}", field, rule, got));
  };
  if (!(beta1 >= 0 && beta1 < 1)) bad("adam_beta1", beta1, "in [0, 1)");
  if (!(beta2 >= 0 && beta2 < 1)) bad("adam_beta2", beta2, "in [0, 1)");
  if (!(eps > 0) || !std::isfinite(eps)) bad("adam_epsilon", eps, "positive");
  if (!(groups.weight_decay >= 0) || !std::isfinite(groups.weight_decay))
    bad("weight_decay", groups.weight_decay, "≥ 0");
}

void LossScaleConfig::validate() const {
  const auto bad = [](const char* field, double got, const char* rule) {
    throw UsageError(tr("[loss_scale] {} must be {}, got {}", field, rule, got));
  };
  const auto fits = [](double scale) { return scale <= std::numeric_limits<float>::max(); };
  if (!fits(fixed_scale)) bad("loss_scale", fixed_scale, "a number that fp32 can hold");
  if (!fits(initial_scale)) bad("initial scale", initial_scale, "a number that fp32 can hold");
  if (!(fixed_scale >= 0)) bad("loss_scale", fixed_scale, "0 (dynamic) or positive");
  if (!(min_scale > 0)) bad("min_loss_scale", min_scale, "positive");
  if (!(initial_scale >= min_scale)) bad("initial scale", initial_scale, "at least min_loss_scale");
  if (window < 1) bad("loss_scale_window", static_cast<double>(window), "at least 1");
  if (hysteresis < 1) bad("hysteresis", static_cast<double>(hysteresis), "at least 1");
}

}  // namespace danlu::settings
