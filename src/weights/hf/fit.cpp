#include "weights/hf/fit.h"

#include <algorithm>
#include <set>

#include "arch/prediction.h"
#include "base/pattern.h"

namespace danlu::weights {

Misfit misfit_of(const arch::ModelConfig& config, const TensorSource& source) {
  Misfit misfit;
  std::set<std::string> known;
  for (arch::ParamSpec& spec : arch::parameters_of(config)) {
    known.insert(spec.name);
    const TensorInfo* info = source.find(spec.name);
    if (!info) {
      const bool is_made =
          (spec.role == arch::Role::kScore || spec.role == arch::Role::kScoreDense) &&
          config.score->seed;
      if (spec.tied_to.empty() && !is_made) misfit.missing.push_back(std::move(spec));
      continue;
    }
    if (info->shape != spec.shape) misfit.reshaped.push_back({spec.name, info->shape, spec.shape});
    if (!is_floating(info->dtype)) misfit.not_floating.push_back(*info);
  }
  // A score head stands in its place.
  if (config.score) {
    for (const std::string& name : arch::vocabulary_head_names(config)) known.insert(name);
  }
  std::vector<Pattern> ignored;
  for (const std::string& pattern : arch::family_named(config.family).ignored_names)
    ignored.emplace_back(pattern);
  for (const TensorInfo& info : source.tensors()) {
    const bool is_ignored =
        arch::is_of_prediction_layer(config, info.name) ||
        std::any_of(ignored.begin(), ignored.end(),
                    [&](const Pattern& pattern) { return pattern.matches(info.name); });
    if (!known.count(info.name) && !is_ignored) misfit.unknown.push_back(info);
  }
  return misfit;
}

}  // namespace danlu::weights
